/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic that is too long for a header. */
#include "base/checked.h"

bool rsi_product(int n, const int64_t *size, int64_t unit, int64_t *out)
{
    int64_t product = unit;
    bool    zero = false;

    for (int i = 0; i < n; i++) {
        if (size[i] < 0)
            return false;
        zero = zero || size[i] == 0;
        if (!rsi_mul(product, size[i] ? size[i] : 1, &product))
            return false;
    }
    *out = zero ? 0 : product;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "accept_cases.h"

int main(void)
{
    return accept_threads(accept_resharding, 8);
}

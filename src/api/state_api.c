/* SPDX-License-Identifier: Apache-2.0 */
/* The usual way to fill a state: a tensor whose layout follows rules, with the memory of its
 * rank. */
#include "base/mem.h"
#include "format/path.h"
#include "state/state.h"

#include <inttypes.h>
#include <string.h>

rsd_err rsd_rules_bytes(const rsd_rules *rules, const char *name, rsd_dtype dtype, int ndim,
                        const int64_t *shape, int32_t rank, int64_t *out, rsd_error *err)
{
    rsd_layout *layout = NULL;
    rsd_err     rc;

    if (!out)
        return rsi_fail(err, RSD_E_INVALID,
                        "missing argument: output pointer for the number of bytes");
    rc = rsd_rules_layout(rules, name, dtype, ndim, shape, &layout, err);
    if (rc)
        return rc;
    *out = rsd_layout_bytes(layout, rank);
    rsd_layout_free(layout);
    return RSD_OK;
}

/* `name` prefixed with the pushed keys, for rsi_free. */
static rsd_err whole_name(const rsd_state *state, const char *name, char **out, rsd_error *err)
{
    const size_t   n = state->depth + 1;
    rsd_path_part *part = rsi_calloc(n, sizeof(part[0]));
    size_t         len;

    if (part) {
        if (n > 1)
            memcpy(part, state->stack, (n - 1) * sizeof(part[0]));
        part[n - 1] = (rsd_path_part){ .key = name };
        len = rsi_path_join(part, n, NULL, 0);
        *out = rsi_calloc(len + 1, 1);
        if (*out)
            rsi_path_join(part, n, *out, len + 1);
    }
    rsi_free(part);
    return *out ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
}

static rsd_err add_views(rsd_state *state, const char *name, const rsd_layout *layout, int32_t rank,
                         void *data, rsd_error *err)
{
    const size_t n = rsd_layout_boxes(layout, rank, NULL, 0);
    int64_t      shape[RSD_MAX_NDIM];
    const int    ndim = rsd_layout_shape(layout, shape);
    rsd_view    *view;
    rsd_err      rc;

    if (n > 0 && !data)
        return rsi_fail(err, RSD_E_INVALID,
                        "tensor \"%s\": rank %" PRId32 " holds %" PRId64 " bytes, but data is NULL",
                        name, rank, rsd_layout_bytes(layout, rank));
    view = rsi_calloc(n ? n : 1, sizeof(view[0]));
    if (!view)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu views", n);
    rsd_layout_views(layout, rank, data, view, n);
    rc = rsd_state_tensor(state, name, layout, rsd_layout_dtype(layout), ndim, shape, n, view, err);
    rsi_free(view);
    return rc;
}

rsd_err rsd_state_add(rsd_state *state, const char *name, const rsd_rules *rules, int32_t rank,
                      rsd_dtype dtype, int ndim, const int64_t *shape, void *data, rsd_error *err)
{
    rsd_layout *layout = NULL;
    char       *whole = NULL;
    rsd_err     rc;

    if (!state || !name || !rules || rank < 0)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: state, name, rules or rank");
    rc = whole_name(state, name, &whole, err);
    if (!rc)
        rc = rsd_rules_layout(rules, whole, dtype, ndim, shape, &layout, err);
    if (!rc)
        rc = add_views(state, name, layout, rank, data, err);
    rsd_layout_free(layout);
    rsi_free(whole);
    return rc;
}

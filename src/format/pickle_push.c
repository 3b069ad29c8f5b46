/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes that push numbers, constants, text and bytes; their table is in pickle_op.c. */
#include "format/pickle_core.h"

/* ---- Scalars ---- */

static rsd_err push_int(rsi_pickle *p, int64_t x)
{
    uint32_t at;
    rsd_err  rc;

    if (x >= -INT_BIAS && x < INT_BIAS)
        return push(p, pv(TAG_INT, (uint32_t)(x + INT_BIAS)));
    rc = add_cells(p, 3, &at);
    if (rc)
        return rc;
    p->cell.at[at] = BOX_INT64;
    memcpy(p->cell.at + at + 1, &x, sizeof(x));
    return push(p, pv(TAG_BOX, at));
}

/* One or two bytes. */
rsd_err rsi_pickle_op_uint(rsi_pickle *p, int n)
{
    rsd_err rc = need_bytes(p, (size_t)n);

    return rc ? rc : push(p, pv(TAG_INT, (uint32_t)(take_le(p, n) + (uint64_t)INT_BIAS)));
}

rsd_err rsi_pickle_op_int(rsi_pickle *p, int bytes)
{
    rsd_err rc = need_bytes(p, (size_t)bytes);

    return rc ? rc : push_int(p, (int32_t)take_le(p, bytes));
}

rsd_err rsi_pickle_op_const(rsi_pickle *p, int constant)
{
    return push(p, pv(TAG_CONST, (uint32_t)constant));
}

/* Two's complement of n bytes. */
static rsd_err push_long(rsi_pickle *p, uint64_t n)
{
    uint64_t x = 0;
    uint32_t at, text;
    rsd_err  rc;

    if (n > 256)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "an integer of %" PRIu64 " bytes, the limit is 256",
                               n);
    rc = need_bytes(p, (size_t)n);
    if (rc)
        return rc;
    if (n <= 8) {
        if (n > 0) {
            x = take_le(p, (int)n) << (64 - 8 * n);
            return push_int(p, (int64_t)x >> (64 - 8 * n));
        }
        return push_int(p, 0);
    }
    rc = rsi_pickle_share(p, SHARED_BYTES, p->at, (size_t)n, &text);
    if (!rc)
        rc = add_cells(p, 2, &at);
    if (rc)
        return rc;
    p->at += n;
    p->cell.at[at] = BOX_BIGINT;
    p->cell.at[at + 1] = pv(TAG_BYTES, text);
    return push(p, pv(TAG_BOX, at));
}

rsd_err rsi_pickle_op_long(rsi_pickle *p, int len_bytes)
{
    rsd_err rc = need_bytes(p, (size_t)len_bytes);

    return rc ? rc : push_long(p, take_le(p, len_bytes));
}

rsd_err rsi_pickle_op_float(rsi_pickle *p, int bytes)
{
    uint32_t at;
    uint64_t bits = 0;
    rsd_err  rc = need_bytes(p, (size_t)bytes);

    if (!rc)
        rc = add_cells(p, 3, &at);
    if (rc)
        return rc;
    for (int i = 0; i < bytes; i++) /* big-endian, unlike the rest */
        bits = bits << 8 | p->at[i];
    p->at += bytes;
    p->cell.at[at] = BOX_FLOAT;
    memcpy(p->cell.at + at + 1, &bits, sizeof(bits));
    return push(p, pv(TAG_BOX, at));
}

/* ---- Text and bytes ---- */

static rsd_err push_text(rsi_pickle *p, enum tag tag, int len_bytes)
{
    int      kind = tag == TAG_STR ? SHARED_STR : SHARED_BYTES;
    uint64_t len;
    uint32_t entry;
    rsd_err  rc = need_bytes(p, (size_t)len_bytes);

    if (rc)
        return rc;
    len = take_le(p, len_bytes);
    if (tag == TAG_STR && len > p->options.max_text)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "a str of %" PRIu64 " bytes, the limit is %zu", len,
                               p->options.max_text);
    if (len > SIZE_MAX >> 1)
        len = SIZE_MAX >> 1; /* more than any input has */
    rc = need_bytes(p, (size_t)len);
    if (!rc)
        rc = rsi_pickle_share(p, kind, p->at, (size_t)len, &entry);
    if (rc)
        return rc;
    p->at += len;
    return push(p, pv(tag, entry));
}

rsd_err rsi_pickle_op_text(rsi_pickle *p, int len_bytes)
{
    return push_text(p, TAG_STR, len_bytes);
}

/* Negative: not bytes in Python. */
rsd_err rsi_pickle_op_bytes(rsi_pickle *p, int len_bytes)
{
    p->merged = p->merged || len_bytes < 0;
    return push_text(p, TAG_BYTES, len_bytes < 0 ? -len_bytes : len_bytes);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* An index of chunks, objects and metadata by place, made when the first damage is to be told. */
#include "verify/blame.h"
#include "base/mem.h"
#include "base/text.h"
#include "shape/box.h"

#include <stdlib.h>
#include <string.h>

#define NAMED 3 /* more would not fit into a message */

struct rsi_blame_item {
    uint64_t    off, len;
    uint32_t    file;
    const char *what; /* not NULL: neither a chunk nor an object, */
    const char *object;
    size_t      t, i; /* else chunk i of tensor t */
};

static int by_place(const void *left, const void *right)
{
    const struct rsi_blame_item *a = left, *b = right;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->off != b->off)
        return a->off < b->off ? -1 : 1;
    if (a->t != b->t)
        return a->t < b->t ? -1 : 1;
    return (a->i > b->i) - (a->i < b->i);
}

static bool add_item(rsi_blame *blame, size_t *cap, struct rsi_blame_item item)
{
    if (item.len == 0)
        return true;
    if (!rsi_grow(&blame->item, blame->n, cap, sizeof(blame->item[0])))
        return false;
    blame->item[blame->n++] = item;
    return true;
}

static bool add_tensor(rsi_blame *blame, size_t *cap, size_t t)
{
    rsd_tensor_info info;
    bool            ok = true;

    blame->ckpt->ops->tensor(blame->ckpt, t, &info);
    for (size_t i = 0; i < info.chunks && ok; i++) {
        rsd_chunk chunk;
        uint32_t  file;

        blame->ckpt->ops->chunk(blame->ckpt, t, i, &chunk, &file);
        ok = add_item(blame, cap,
                      (struct rsi_blame_item){
                          .off = chunk.offset, .len = chunk.length, .file = file, .t = t, .i = i });
    }
    return ok;
}

rsd_err rsi_blame_make(rsd_ckpt *ckpt, rsi_blame *out, rsd_error *err)
{
    rsi_blame blame = { .ckpt = ckpt };
    size_t    cap = 0;
    rsi_span  span;
    bool      ok = true;

    for (size_t t = 0; t < ckpt->ntensors && ok; t++)
        ok = add_tensor(&blame, &cap, t);
    for (size_t k = 0; ok && ckpt->ops->span(ckpt, k, &span); k++)
        ok = add_item(&blame, &cap,
                      (struct rsi_blame_item){ .off = span.off,
                                               .len = span.len,
                                               .file = span.file,
                                               .what = span.what,
                                               .object = span.object });
    if (!ok) {
        rsi_blame_release(&blame);
        return rsi_fail(err, RSD_E_NOMEM, "no memory to name what is damaged");
    }
    if (blame.n)
        qsort(blame.item, blame.n, sizeof(blame.item[0]), by_place);
    *out = blame;
    return RSD_OK;
}

void rsi_blame_release(rsi_blame *blame)
{
    rsi_free(blame->item);
    *blame = (rsi_blame){ 0 };
}

/* The smallest box that has elements first .. last of `box`, counted in row-major order. */
static void box_of_range(const rsd_box *box, int64_t first, int64_t last, rsd_box *out)
{
    int64_t size = rsd_box_count(box);
    bool    same = true; /* so far both are at the same place */

    *out = *box;
    for (int d = 0; d < box->ndim && same; d++) {
        int64_t lo, hi;

        size /= box->len[d];
        lo = first / size;
        hi = last / size;
        out->off[d] = box->off[d] + lo;
        out->len[d] = hi - lo + 1;
        first %= size;
        last %= size;
        same = lo == hi;
    }
}

/* The box of chunk i that bytes [off, off + len) of the file belong to. False: none of its elements
 * lie there, or where they do can't be told. */
static bool box_at(rsd_ckpt *ckpt, const rsd_tensor_info *info, const struct rsi_blame_item *item,
                   uint64_t off, uint64_t len, rsd_box *out)
{
    const uint64_t elem = rsd_dtype_size(info->dtype);
    int64_t        packed[RSD_MAX_NDIM];
    rsd_chunk      chunk;
    rsi_extent     x;
    uint32_t       file;
    uint64_t       end, bytes;
    bool           plain;

    ckpt->ops->chunk(ckpt, item->t, item->i, &chunk, &file);
    *out = chunk.box;
    if (ckpt->ops->locate(ckpt, item->t, item->i, false, &x, NULL))
        return true; /* it can't be told: all of it */
    plain = !x.decoded;
    rsi_free(x.decoded);
    rsi_strides(info->ndim, chunk.box.len, (int64_t)elem, packed);
    for (int d = 0; d < info->ndim; d++)
        plain = plain && (chunk.box.len[d] <= 1 || x.stride[d] == packed[d]);
    if (!plain)
        return true;
    bytes = (uint64_t)rsd_box_count(&chunk.box) * elem;
    end = off + len;
    if (bytes == 0 || end <= x.offset || off >= x.offset + bytes)
        return false;
    off = off > x.offset ? off - x.offset : 0;
    end = end - x.offset < bytes ? end - x.offset : bytes;
    box_of_range(&chunk.box, (int64_t)(off / elem), (int64_t)((end - 1) / elem), out);
    return true;
}

static void add_words(rsi_text *text, const rsi_blame *blame, const struct rsi_blame_item *item,
                      uint64_t off, uint64_t len)
{
    rsd_tensor_info info;
    rsd_box         box;
    char            words[128];

    if (item->what || item->object) {
        rsi_text_add(text, item->what ? "%s" : "object \"%.60s\"",
                     item->what ? item->what : item->object);
        return;
    }
    blame->ckpt->ops->tensor(blame->ckpt, item->t, &info);
    rsi_text_add(text, "tensor \"%.80s\"", info.name);
    if (!box_at(blame->ckpt, &info, item, off, len, &box)) {
        rsi_text_add(text, " (not its elements)");
        return;
    }
    rsd_box_text(&box, words, sizeof(words));
    rsi_text_add(text, " %s", words);
}

/* The first item that ends behind `off`: those of one file lie apart or at the same place. */
static size_t first_item(const rsi_blame *blame, uint32_t file, uint64_t off)
{
    size_t lo = 0, hi = blame->n;

    while (lo < hi) {
        const struct rsi_blame_item *item;
        size_t                       mid = lo + (hi - lo) / 2;

        item = &blame->item[mid];
        if (item->file < file || (item->file == file && item->off + item->len <= off))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

size_t rsi_blame_text(const rsi_blame *blame, uint32_t file, uint64_t off, uint64_t len, char *buf,
                      size_t cap)
{
    rsi_text text = rsi_text_begin(buf, cap);
    size_t   first = first_item(blame, file, off), n = 0;

    while (first + n < blame->n && blame->item[first + n].file == file &&
           blame->item[first + n].off < off + len) {
        if (n < NAMED) {
            rsi_text_add(&text, "%s", n ? ", " : "");
            add_words(&text, blame, &blame->item[first + n], off, len);
        }
        n++;
    }
    if (n > NAMED)
        rsi_text_add(&text, " and %zu more", n - NAMED);
    if (n == 0)
        rsi_text_add(&text, "padding");
    return text.len;
}

static size_t object_number(rsd_ckpt *ckpt, const char *object)
{
    const char *name;

    for (size_t i = 0; i < ckpt->nobjects; i++)
        if (ckpt->ops->object(ckpt, i, &name, NULL, NULL, NULL) == RSD_OK &&
            strcmp(name, object) == 0)
            return ckpt->ntensors + i;
    return SIZE_MAX;
}

void rsi_blame_each(const rsi_blame *blame, uint32_t file, uint64_t off, uint64_t len,
                    void (*mark)(void *arg, size_t number), void *arg)
{
    for (size_t n = first_item(blame, file, off); n < blame->n; n++) {
        const struct rsi_blame_item *item = &blame->item[n];
        rsd_tensor_info              info;
        rsd_box                      box;

        if (item->file != file || item->off >= off + len)
            return;
        if (item->object) {
            mark(arg, object_number(blame->ckpt, item->object));
        } else if (!item->what) {
            blame->ckpt->ops->tensor(blame->ckpt, item->t, &info);
            if (box_at(blame->ckpt, &info, item, off, len, &box))
                mark(arg, item->t);
        }
    }
}

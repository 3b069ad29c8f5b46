/* SPDX-License-Identifier: Apache-2.0 */
/* An index of chunks, objects and metadata by place, built when the first damage is reported. */
#include "verify/place_names.h"
#include "base/mem.h"
#include "base/text.h"
#include "shape/box.h"

#include <stdlib.h>
#include <string.h>

#define NAMED 3 /* more would not fit in a message */

rsi_item rsi_chunk_item(const rsd_ckpt *ckpt, size_t t, size_t i)
{
    rsd_chunk chunk;
    uint32_t  file;

    ckpt->ops->chunk(ckpt, t, i, &chunk, &file);
    return (rsi_item){ .file = file,
                       .off = chunk.offset,
                       .len = chunk.length,
                       .t = t,
                       .i = i,
                       .transformed = chunk.ntransforms > 0 };
}

bool rsi_items_next(const rsd_ckpt *ckpt, rsi_items *items)
{
    rsd_tensor_info info;

    for (; items->t < ckpt->ntensors; items->t++, items->i = 0) {
        if (items->i == 0) {
            ckpt->ops->tensor(ckpt, items->t, &info);
            items->chunks = info.chunks;
        }
        if (items->i < items->chunks) {
            items->item = rsi_chunk_item(ckpt, items->t, items->i++);
            return true;
        }
    }
    return ckpt->ops->span(ckpt, items->k++, &items->item);
}

static int by_place(const void *left, const void *right)
{
    const rsi_item *a = left, *b = right;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->off != b->off)
        return a->off < b->off ? -1 : 1;
    if (a->t != b->t)
        return a->t < b->t ? -1 : 1;
    return (a->i > b->i) - (a->i < b->i);
}

rsd_err rsi_place_names_make(rsd_ckpt *ckpt, rsi_place_names *out, rsd_error *err)
{
    rsi_place_names names = { .ckpt = ckpt };
    rsi_items       items = { 0 };
    size_t          cap = 0;

    while (rsi_items_next(ckpt, &items)) {
        if (items.item.len == 0)
            continue;
        if (!rsi_grow(&names.item, names.n, &cap, sizeof(names.item[0]))) {
            rsi_place_names_release(&names);
            return rsi_fail(err, RSD_E_NOMEM, "no memory to name what is damaged");
        }
        names.item[names.n++] = items.item;
    }
    if (names.n)
        qsort(names.item, names.n, sizeof(names.item[0]), by_place);
    *out = names;
    return RSD_OK;
}

void rsi_place_names_release(rsi_place_names *names)
{
    rsi_free(names->item);
    *names = (rsi_place_names){ 0 };
}

/* The smallest box that contains elements first .. last of `box`, counted in row-major order. */
static void box_of_range(const rsd_box *box, int64_t first, int64_t last, rsd_box *out)
{
    int64_t size = rsd_box_count(box);
    bool    same = true; /* both positions have been equal so far */

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
 * lie there, or their place is unknown. */
static bool box_at(rsd_ckpt *ckpt, const rsd_tensor_info *info, const rsi_item *item, uint64_t off,
                   uint64_t len, rsd_box *out)
{
    const uint64_t elem = rsd_dtype_size(info->dtype);
    int64_t        packed[RSD_MAX_NDIM];
    rsd_chunk      chunk;
    rsi_extent     x;
    uint32_t       file;
    uint64_t       end, bytes;
    bool           plain = true;

    ckpt->ops->chunk(ckpt, item->t, item->i, &chunk, &file);
    *out = chunk.box;
    if (item->transformed || ckpt->ops->locate(ckpt, item->t, item->i, false, &x, NULL))
        return true; /* unknown: the whole box */
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

static size_t object_number(rsd_ckpt *ckpt, const char *object)
{
    const char *name;

    for (size_t i = 0; i < ckpt->nobjects; i++)
        if (ckpt->ops->object(ckpt, i, &name, NULL, NULL, NULL) == RSD_OK &&
            strcmp(name, object) == 0)
            return ckpt->ntensors + i;
    return SIZE_MAX;
}

/* Returns the number of the tensor or object that owns some of the bytes; SIZE_MAX: none. */
static size_t add_words(rsi_text *text, rsd_ckpt *ckpt, const rsi_item *item, uint64_t off,
                        uint64_t len)
{
    rsd_tensor_info info;
    rsd_box         box;
    char            words[128];

    if (!rsi_item_is_chunk(item)) {
        rsi_text_add(text, item->what ? "%s" : "object \"%.60s\"",
                     item->what ? item->what : item->object);
        return item->object ? object_number(ckpt, item->object) : SIZE_MAX;
    }
    ckpt->ops->tensor(ckpt, item->t, &info);
    rsi_text_add(text, "tensor \"%.80s\"", info.name);
    if (!box_at(ckpt, &info, item, off, len, &box)) {
        rsi_text_add(text, " (not its elements)");
        return SIZE_MAX;
    }
    rsd_box_text(&box, words, sizeof(words));
    rsi_text_add(text, " %s", words);
    return item->t;
}

/* The first item that ends after `off`. Items of a file are disjoint or cover the same bytes. */
static size_t first_item(const rsi_place_names *names, uint32_t file, uint64_t off)
{
    size_t lo = 0, hi = names->n;

    while (lo < hi) {
        const size_t    mid = lo + (hi - lo) / 2;
        const rsi_item *item = &names->item[mid];

        if (item->file < file || (item->file == file && item->off + item->len <= off))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

size_t rsi_place_names_text(const rsi_place_names *names, uint32_t file, uint64_t off, uint64_t len,
                            void (*mark)(void *arg, size_t number), void *arg, char *buf,
                            size_t cap)
{
    rsi_text text = rsi_text_begin(buf, cap), rest = rsi_text_begin(NULL, 0);
    size_t   n = 0;

    for (size_t k = first_item(names, file, off);
         k < names->n && names->item[k].file == file && names->item[k].off < off + len; k++, n++) {
        rsi_text_add(n < NAMED ? &text : &rest, "%s", n ? ", " : "");
        mark(arg, add_words(n < NAMED ? &text : &rest, names->ckpt, &names->item[k], off, len));
    }
    if (n > NAMED)
        rsi_text_add(&text, " and %zu more", n - NAMED);
    if (n == 0)
        rsi_text_add(&text, "padding");
    return text.len;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the pickle reader and what is made of its values: memory stays within its limit, a small
 * window reads the same as memory does, objects fold, and every value can be printed. */
#include "base/mem.h"
#include "format/value.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact)
        abort();
}

/* Not rsi_memory_read, so that the reader goes through its window. */
static rsd_err read_slowly(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    return rsi_memory_read(arg, off, buf, len, err);
}

/* Looks at all that it is given, as a real hook does. */
static rsd_err fold(void *arg, const rsi_pickle *p, rsi_pickle_object *object, rsi_pv *out,
                    rsd_error *err)
{
    uint32_t       *count = arg;
    rsi_pickle_iter it = rsi_pickle_each(p, object->state);
    rsi_pv          v;

    while (rsi_pickle_next(p, &it, &v))
        *count += rsi_pickle_kind_of(p, v) == RSI_PICKLE_GONE;
    require(*count == 0);
    object->keep = rsi_pickle_count(p, object->state) == 2;
    *out = rsi_pickle_user(object->id == 1 ? 7 : 8);
    if (rsi_pickle_count(p, object->args) == 3)
        return rsi_fail(err, RSD_E_FORMAT, "three arguments");
    return RSD_OK;
}

/* Every value that can be reached, at most `left` of them, never GONE. */
static void walk(const rsi_pickle *p, rsi_pv v, int *left, int depth)
{
    rsi_pickle_iter   it = rsi_pickle_each(p, v);
    rsi_pickle_object object = rsi_pickle_object_of(p, v);
    rsi_pv            item;

    require(rsi_pickle_kind_of(p, v) != RSI_PICKLE_GONE);
    while (depth < 40 && --*left > 0 && rsi_pickle_next(p, &it, &item))
        walk(p, item, left, depth + 1);
    if (rsi_pickle_kind_of(p, v) == RSI_PICKLE_OBJECT && depth < 40 && --*left > 0)
        walk(p, object.args, left, depth + 1);
}

static void read_folding(const uint8_t *data, size_t size)
{
    static const rsi_pickle_class classes[] = {
        { "m", "A", 1, RSI_PICKLE_FOLD_BUILD },
        { "m", "B", 2, RSI_PICKLE_FOLD_BUILD },
        { "m", "C", 3, RSI_PICKLE_FOLD_CALL },
        { "m", "D", 4, 0 },
    };
    uint32_t           gone = 0;
    rsi_pickle_options options = {
        .classes = classes, .nclasses = 4, .fold = fold, .arg = &gone, .window = 1
    };
    rsi_source  source = rsi_memory_source(data, size, "fuzz"), slow = source;
    rsi_pickle *p;
    rsi_pv      root;
    int         left = 10000;
    rsd_err     rc;
    uint64_t    used = 0, slow_used = 0;

    slow.read = read_slowly;
    if (rsi_pickle_create(&options, &p, NULL))
        return;
    rc = rsi_pickle_read(p, &source, &root, &used, NULL);
    require(rsi_pickle_memory(p) <= 16 * size + (1 << 20));
    if (!rc)
        walk(p, root, &left, 0);
    require(rsi_pickle_read(p, &slow, &root, &slow_used, NULL) == rc && used == slow_used);
    rsi_pickle_free(p);
}

static void decode(const uint8_t *data, size_t size)
{
    rsi_source       source = rsi_memory_source(data, size, "fuzz");
    rsi_value_pickle pickle;
    rsd_values      *owner;
    char             text[256];

    if (rsd_values_create(&owner, NULL))
        return;
    if (rsi_value_read(&source, owner, &pickle, NULL) == RSD_OK) {
        rsd_value_text(pickle.root, text, sizeof(text));
        rsd_value_json(pickle.root, text, sizeof(text));
    }
    rsd_values_free(owner);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rsi_mem_fail_at(0, 0);
    read_folding(data, size);
    decode(data, size);
    /* Both parts within the limit; the last term is the state of the two, which is of fixed size.
     */
    require(rsi_mem_stats_get().peak <= (int64_t)(16 * size + (1 << 20) + (128 << 10)));
    require(rsi_mem_stats_get().bytes == 0);
    return 0;
}

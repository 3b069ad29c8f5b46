/* SPDX-License-Identifier: Apache-2.0 */
/* Values out of the bytes of a pickle: the classes that are known by name, and the limit of memory.
 * pickle.c parses it, value_decode.c makes the values. */
#include "base/mem.h"
#include "base/text.h"
#include "format/value_core.h"

#include <inttypes.h>

#define TORCH(name)                                                                                \
    {                                                                                              \
        "torch", name, RSI_VALUE_CLASS_TORCH, 0                                                    \
    }
#define STORAGE(name, dtype)                                                                       \
    {                                                                                              \
        "torch", name, RSI_VALUE_CLASS_STORAGE + dtype, 0                                          \
    }

static const rsi_pickle_class classes[] = {
    { "collections", "OrderedDict", RSI_VALUE_CLASS_ORDERED_DICT, 0 },
    { "_codecs", "encode", RSI_VALUE_CLASS_ENCODE, 0 },
    { "builtins", "set", RSI_VALUE_CLASS_SET, 0 },
    { "__builtin__", "set", RSI_VALUE_CLASS_SET, 0 },
    { "builtins", "frozenset", RSI_VALUE_CLASS_SET, 0 },
    { "__builtin__", "frozenset", RSI_VALUE_CLASS_SET, 0 },
    { "builtins", "bytes", RSI_VALUE_CLASS_BYTES, 0 },
    { "__builtin__", "bytes", RSI_VALUE_CLASS_BYTES, 0 },
    { "builtins", "bytearray", RSI_VALUE_CLASS_BYTES, 0 },
    { "__builtin__", "bytearray", RSI_VALUE_CLASS_BYTES, 0 },
    { "torch", "Size", RSI_VALUE_CLASS_SIZE, 0 },
    { "torch", "device", RSI_VALUE_CLASS_DEVICE, 0 },
    { "torch._utils", "_rebuild_tensor_v2", RSI_VALUE_CLASS_TENSOR_V2, 0 },
    { "torch._utils", "_rebuild_tensor_v3", RSI_VALUE_CLASS_TENSOR_V3, 0 },
    { "torch._utils", "_rebuild_parameter", RSI_VALUE_CLASS_PARAMETER, 0 },
    { "torch._utils", "_rebuild_parameter_with_state", RSI_VALUE_CLASS_PARAMETER, 0 },
    { "torch._utils", "_rebuild_wrapper_subclass", RSI_VALUE_CLASS_WRAPPER, 0 },
    { "torch._tensor", "_rebuild_from_type", RSI_VALUE_CLASS_FROM_TYPE, 0 },
    { "torch._tensor", "_rebuild_from_type_v2", RSI_VALUE_CLASS_FROM_TYPE, 0 },
    { "collections", "defaultdict", RSI_VALUE_CLASS_DEFAULT_DICT, 0 },
    { "collections", "Counter", RSI_VALUE_CLASS_COUNTER, 0 },
    { "torch.storage", "UntypedStorage", RSI_VALUE_CLASS_UNTYPED, 0 },
    STORAGE("DoubleStorage", RSD_F64),
    STORAGE("FloatStorage", RSD_F32),
    STORAGE("HalfStorage", RSD_F16),
    STORAGE("BFloat16Storage", RSD_BF16),
    STORAGE("LongStorage", RSD_I64),
    STORAGE("IntStorage", RSD_I32),
    STORAGE("ShortStorage", RSD_I16),
    STORAGE("CharStorage", RSD_I8),
    STORAGE("ByteStorage", RSD_U8),
    STORAGE("BoolStorage", RSD_BOOL),
    STORAGE("ComplexFloatStorage", RSD_C64),
    STORAGE("ComplexDoubleStorage", RSD_C128),
    RSI_TORCH_DTYPES(TORCH),
};

const rsi_pickle_class *rsi_value_classes(size_t *n)
{
    *n = sizeof(classes) / sizeof(classes[0]);
    return classes;
}

rsd_err rsi_value_read(const rsi_source *source, rsd_values *owner, rsi_value_pickle *out,
                       rsd_error *err)
{
    rsi_pickle_options  options = { .classes = classes,
                                    .nclasses = sizeof(classes) / sizeof(classes[0]),
                                    .max_stack = SIZE_MAX,
                                    .max_text = RSI_VALUE_BYTES };
    rsi_value_pickle    made = { 0 };
    rsi_pickle_unlisted bad;
    rsi_pickle         *p = NULL;
    rsi_pv              root = 0;
    uint64_t            used = 0;
    size_t              limit = rsi_pickle_limit(source->size), held;
    rsd_err             rc = rsi_pickle_create(&options, &p, err);

    if (!rc)
        rc = rsi_pickle_read(p, source, &root, &used, err);
    if (!rc && used != source->size)
        rc = rsi_fail(err, RSD_E_FORMAT,
                      "%" PRIu64 " bytes after the end of the pickle at byte %" PRIu64,
                      source->size - used, source->start + used);
    if (!rc) {
        rsi_pickle_trim(p);
        held = rsi_pickle_memory(p);
        owner->mem.limit = owner->mem.used + (held < limit ? limit - held : 1);
        rc = rsi_value_decode(p, root, owner, &made.root, err);
    }
    if (!rc && rsi_pickle_calls_unlisted(p, &bad)) {
        char     name[512];
        rsi_text text = rsi_text_begin(name, sizeof(name));

        rsi_text_add(&text, "%s.%s", bad.module, bad.name);
        made.unlisted = rsi_arena_text(&owner->mem, name, strlen(name));
        made.unlisted_at = source->start + bad.at;
        if (!made.unlisted)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the values of a pickle");
    }
    if (rc == RSD_E_NOMEM && owner->mem.full)
        rc = rsi_fail(err, RSD_E_FORMAT,
                      "its values would take more than %zu bytes of memory, which is the limit for "
                      "%" PRIu64 " bytes",
                      limit, source->size);
    owner->mem.limit = 0;
    owner->mem.full = false;
    rsi_pickle_free(p);
    if (!rc)
        *out = made;
    return rc;
}

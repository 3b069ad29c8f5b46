/* SPDX-License-Identifier: Apache-2.0 */
/* Every element type that torch can store: sizes and names, in one table. */
#include "base/error.h"

#include <string.h>

static const struct dtype {
    rsd_dtype   dtype;
    int         bits;
    const char *torch;       /* torch.<name> */
    const char *safetensors; /* NULL: the format lacks this type */
    const char *brief;       /* short name for users to type */
} table[] = {
    { RSD_BOOL, 8, "bool", "BOOL", "bool" },
    { RSD_U8, 8, "uint8", "U8", "u8" },
    { RSD_I8, 8, "int8", "I8", "i8" },
    { RSD_U16, 16, "uint16", "U16", "u16" },
    { RSD_I16, 16, "int16", "I16", "i16" },
    { RSD_U32, 32, "uint32", "U32", "u32" },
    { RSD_I32, 32, "int32", "I32", "i32" },
    { RSD_U64, 64, "uint64", "U64", "u64" },
    { RSD_I64, 64, "int64", "I64", "i64" },
    { RSD_F16, 16, "float16", "F16", "f16" },
    { RSD_BF16, 16, "bfloat16", "BF16", "bf16" },
    { RSD_F32, 32, "float32", "F32", "f32" },
    { RSD_F64, 64, "float64", "F64", "f64" },
    { RSD_C32, 32, "complex32", NULL, "c32" },
    { RSD_C64, 64, "complex64", "C64", "c64" },
    { RSD_C128, 128, "complex128", NULL, "c128" },
    { RSD_F8_E4M3FN, 8, "float8_e4m3fn", "F8_E4M3", "f8_e4m3fn" },
    { RSD_F8_E5M2, 8, "float8_e5m2", "F8_E5M2", "f8_e5m2" },
    { RSD_F8_E4M3FNUZ, 8, "float8_e4m3fnuz", "F8_E4M3FNUZ", "f8_e4m3fnuz" },
    { RSD_F8_E5M2FNUZ, 8, "float8_e5m2fnuz", "F8_E5M2FNUZ", "f8_e5m2fnuz" },
    { RSD_F8_E8M0FNU, 8, "float8_e8m0fnu", "F8_E8M0", "f8_e8m0fnu" },
    { RSD_F4_E2M1FN_X2, 8, "float4_e2m1fn_x2", "F4", "f4_e2m1fn_x2" },
};

static const struct dtype *find(rsd_dtype dtype)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].dtype == dtype)
            return &table[i];
    return NULL;
}

int rsd_dtype_bits(rsd_dtype dtype)
{
    const struct dtype *found = find(dtype);

    return found ? found->bits : 0;
}

size_t rsd_dtype_size(rsd_dtype dtype)
{
    return (size_t)rsd_dtype_bits(dtype) / 8;
}

const char *rsd_dtype_name(rsd_dtype dtype)
{
    const struct dtype *found = find(dtype);

    return found ? found->torch : NULL;
}

const char *rsd_dtype_safetensors_name(rsd_dtype dtype)
{
    const struct dtype *found = find(dtype);

    return found ? found->safetensors : NULL;
}

rsd_err rsd_dtype_parse(const char *name, rsd_dtype *out, rsd_error *err)
{
    const char *plain = name;

    if (!name || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: dtype name or output pointer");
    if (strncmp(name, "torch.", 6) == 0)
        plain += 6;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct dtype *t = &table[i];

        if (strcmp(plain, t->torch) == 0 || strcmp(name, t->brief) == 0 ||
            (t->safetensors && strcmp(name, t->safetensors) == 0)) {
            *out = t->dtype;
            return RSD_OK;
        }
    }
    return rsi_fail(err, RSD_E_INVALID, "\"%s\" is not the name of a dtype", name);
}

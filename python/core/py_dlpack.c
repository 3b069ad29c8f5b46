/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays as DLPack capsules. The structs are those of dlpack.h, versions 0.8 and 1.0. */
#include "py_core.h"

#include <stdlib.h>

enum { ON_CPU = 1 };

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t  code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void     *ctx;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *ctx;
    void (*deleter)(struct dl_versioned *);
    uint64_t  flags;
    dl_tensor tensor;
} dl_versioned;

/* What a capsule keeps: the memory, and shape and strides for it to point to. */
typedef struct kept {
    union {
        dl_managed   plain;
        dl_versioned versioned;
    } as;
    block  *memory;
    int64_t shape[RSD_MAX_NDIM], stride[RSD_MAX_NDIM];
} kept;

/* The consumer may call it from any thread, without the GIL. */
static void let_go(kept *k)
{
    if (atomic_fetch_sub(&k->memory->users, 1) == 1) {
        free(k->memory->data);
        free(k->memory);
    }
    free(k);
}

static void delete_plain(dl_managed *m)
{
    let_go(m->ctx);
}

static void delete_versioned(dl_versioned *m)
{
    let_go(m->ctx);
}

/* A capsule that nobody took still has its first name. */
static void delete_capsule(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);

    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *m = PyCapsule_GetPointer(capsule, name);

        m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *m = PyCapsule_GetPointer(capsule, name);

        m->deleter(m);
    }
}

/* The type code of DLPack; -1: it has none. */
static int code_of(rsd_dtype dtype)
{
    switch (dtype) {
    case RSD_I8:
    case RSD_I16:
    case RSD_I32:
    case RSD_I64:
        return 0;
    case RSD_U8:
    case RSD_U16:
    case RSD_U32:
    case RSD_U64:
        return 1;
    case RSD_F16:
    case RSD_F32:
    case RSD_F64:
        return 2;
    case RSD_BF16:
        return 4;
    case RSD_C32:
    case RSD_C64:
    case RSD_C128:
        return 5;
    case RSD_BOOL:
        return 6;
    case RSD_F8_E4M3FN:
        return 10;
    case RSD_F8_E4M3FNUZ:
        return 11;
    case RSD_F8_E5M2:
        return 12;
    case RSD_F8_E5M2FNUZ:
        return 13;
    case RSD_F8_E8M0FNU:
        return 14;
    case RSD_F4_E2M1FN_X2:
        return 17;
    }
    return -1;
}

static dl_tensor describe(array *a, kept *k)
{
    const bool pairs = a->dtype == RSD_F4_E2M1FN_X2;
    dl_tensor  t = { .data = a->memory->data, .device.type = ON_CPU, .ndim = a->ndim };

    t.dtype.code = (uint8_t)code_of(a->dtype);
    t.dtype.bits = pairs ? 4 : (uint8_t)rsd_dtype_bits(a->dtype);
    t.dtype.lanes = pairs ? 2 : 1;
    for (int d = 0; d < a->ndim; d++) {
        k->shape[d] = a->shape[d];
        k->stride[d] = a->stride[d];
    }
    t.shape = k->shape;
    t.strides = k->stride;
    return t;
}

PyObject *dlpack_export(array *a, bool versioned)
{
    kept     *k = malloc(sizeof(*k));
    PyObject *capsule;

    if (!k)
        return PyErr_NoMemory();
    k->memory = a->memory;
    atomic_fetch_add(&a->memory->users, 1);
    if (versioned) {
        k->as.versioned = (dl_versioned){ .version.major = 1, .ctx = k };
        k->as.versioned.deleter = delete_versioned;
        k->as.versioned.tensor = describe(a, k);
    } else {
        k->as.plain = (dl_managed){ .ctx = k, .deleter = delete_plain };
        k->as.plain.tensor = describe(a, k);
    }
    capsule = PyCapsule_New(&k->as, versioned ? "dltensor_versioned" : "dltensor", delete_capsule);
    if (!capsule)
        let_go(k);
    return capsule;
}

PyObject *dlpack_device(void)
{
    return Py_BuildValue("(ii)", ON_CPU, 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the decoding of values. Included only by value*.c. */
#ifndef RSI_VALUE_CORE_H
#define RSI_VALUE_CORE_H

#include "base/bytes.h"
#include "format/value.h"

/* Classes known to the decoder. */
enum {
    RSI_VALUE_CLASS_TORCH, /* dtypes */
    RSI_VALUE_CLASS_ORDERED_DICT,
    RSI_VALUE_CLASS_ENCODE,
    RSI_VALUE_CLASS_SET,
    RSI_VALUE_CLASS_BYTES,
    RSI_VALUE_CLASS_SIZE,
    RSI_VALUE_CLASS_DEVICE,
    RSI_VALUE_CLASS_TENSOR_V2,
    RSI_VALUE_CLASS_TENSOR_V3,
    RSI_VALUE_CLASS_PARAMETER, /* also with a state */
    RSI_VALUE_CLASS_FROM_TYPE, /* of a subclass, or with attributes */
    RSI_VALUE_CLASS_WRAPPER,   /* a subclass around other tensors */
    RSI_VALUE_CLASS_DEFAULT_DICT,
    RSI_VALUE_CLASS_COUNTER,
    RSI_VALUE_CLASS_UNTYPED,
    RSI_VALUE_CLASS_STORAGE = 256 /* + rsd_dtype */
};

/* rsd_value_create_bytes without the checks: for bytes that the pickle reader has checked. */
rsd_err rsi_value_bytes(rsd_values *owner, rsd_value_type type, const void *bytes, size_t len,
                        const rsd_value **out, rsd_error *err);
/* Why these bytes can't be a value of this type; NULL: they can. */
const char *rsi_value_fault(rsd_value_type type, const char *bytes, size_t len);

#define RSI_VALUE_BYTES ((size_t)1 << 29) /* per value at most: a pickle may have 1 GiB */
enum { RSI_BIGINT_BYTES = 256 };          /* of an integer, the reader's limit */
/* Decimal digits to two's complement, least significant byte first; `le` has room for 2 bytes more
 * than the limit. Returns the number of bytes, 0 if these are not digits or too many. */
size_t rsi_bigint(const char *digits, size_t len, unsigned char *le);

/* Refuses a view that reaches past the end of its storage. */
rsd_err rsi_value_tensor_check(const rsd_value_tensor *t, rsd_err code, rsd_error *err);

/* As rsd_value_create_list, but `item` is already in the owner's memory and is not copied. */
rsd_err rsi_value_adopt(rsd_values *owner, rsd_value_type type, size_t n,
                        const rsd_value *const *item, const rsd_value **out, rsd_error *err);
/* A dict of n pairs that has a class, which is item[2 * n]: an opaque value with opcodes. */
rsd_err rsi_value_create_classed(rsd_values *owner, size_t n, const rsd_value *const *item,
                                 const rsd_value **out, rsd_error *err);
/* An opaque value; `facts` are copied, except their name, which is ignored. */
rsd_err rsi_value_create_opaque(rsd_values *owner, const char *name, size_t len,
                                const rsi_opaque *facts, const rsd_value **out, rsd_error *err);
/* Describes everything below v by a digest and a list of storages: facts->storage is freed with
 * rsi_free. Subtracts the steps taken from *left; if they run out, facts->known stays false. */
rsd_err rsi_value_opaque_read(const rsi_pickle *p, rsi_pv v, uint64_t *left, rsi_opaque *facts,
                              rsd_error *err);
/* The object as opcodes, without protocol and STOP: for a copy. False if it has storages inside,
 * takes more than `most` bytes, or has no exact form; what was added to *out is then undefined. */
bool rsi_value_foreign(const rsi_pickle *p, rsi_pv v, size_t most, rsi_bytes *out);
/* ("storage", class, key, location, numel): its name, place and bytes; the dtype if it is typed. */
bool rsi_value_storage(const rsi_pickle *p, rsi_pv v, rsd_value_tensor *t);
/* The tensor that a call of torch's rebuilding functions would give; attributes and subclasses are
 * dropped. *known is false if it can't be represented: another dtype, more dimensions, another
 * storage. Text lives as long as the pickle's values. */
rsd_err rsi_value_tensor_decode(const rsi_pickle *p, rsi_pv v, rsd_value_tensor *out, bool *known,
                                rsd_error *err);
/* The call below Parameters, attributes and subclasses: returns what it would call, and its
 * arguments. */
int rsi_value_unwrap(const rsi_pickle *p, rsi_pv v, rsi_pv *args);
/* A DTensor; its local tensor becomes a value of `owner`. *known as above. */
rsd_err rsi_value_dtensor_decode(const rsi_pickle *p, rsi_pv v, rsd_values *owner, rsi_dtensor *out,
                                 bool *known, rsd_error *err);

#endif

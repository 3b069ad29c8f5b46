/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Python pickles without running anything: a call becomes a value that describes it. Classes
 * are kept by name; the caller lists those it knows and decides about the rest. Text is copied
 * once, so nothing refers to the input after reading.
 *
 * The opcodes are in pickle_op.c, memory in pickle_heap.c. Next: value.h for plain objects,
 * dcp_meta.h for `.metadata`. */
#ifndef RSI_PICKLE_H
#define RSI_PICKLE_H

#include "format/source.h"

typedef struct rsi_pickle rsi_pickle;

/* One value, owned by its reader. Equal text, equal bytes and equal short tuples of integers have
 * equal numbers. */
typedef uint32_t rsi_pv;

/* The lowest four bits of a value are its tag, the others depend on it; pickle_core.h has all tags.
 * Hooks, which run for every object, look at these themselves. */
enum { RSI_PICKLE_TAG_STR = 2, RSI_PICKLE_TAG_INTS = 4, RSI_PICKLE_TAG_USER = 6 };

typedef enum rsi_pickle_kind {
    RSI_PICKLE_NONE,
    RSI_PICKLE_FALSE,
    RSI_PICKLE_TRUE,
    RSI_PICKLE_INT,    /* fits 64 bits */
    RSI_PICKLE_BIGINT, /* rsi_pickle_bytes: two's complement, little-endian, 9 to 256 bytes */
    RSI_PICKLE_FLOAT,
    RSI_PICKLE_STR,   /* UTF-8; may contain lone surrogates, as in Python */
    RSI_PICKLE_BYTES, /* bytes and bytearray */
    RSI_PICKLE_TUPLE,
    RSI_PICKLE_INTS, /* a tuple of at most 32 integers, even the empty one: rsi_pickle_ints */
    RSI_PICKLE_LIST,
    RSI_PICKLE_DICT, /* in file order; of duplicate keys Python keeps the last */
    RSI_PICKLE_SET,  /* set and frozenset */
    RSI_PICKLE_CLASS,
    RSI_PICKLE_OBJECT, /* the result that a call would have had */
    RSI_PICKLE_PERSID, /* something outside the pickle: rsi_pickle_persid */
    RSI_PICKLE_USER,   /* a number that the fold hook put here */
    RSI_PICKLE_GONE    /* no value; never returned by a successful read */
} rsi_pickle_kind;

enum {
    RSI_PICKLE_FOLD_CALL = 1,  /* the hook is called when the class is called */
    RSI_PICKLE_FOLD_BUILD = 2, /* the hook is called when an object of the class gets its state */
    /* Later versions add attributes, which are ignored here: names outside the list are allowed in
     * an attribute that is not interned. */
    RSI_PICKLE_GROWS = 4,
    /* Later versions move it: it is the same in any module below torch.distributed. */
    RSI_PICKLE_MOVES = 8
};
/* The same, and of a state that is a tuple only the first n parts are used. */
#define RSI_PICKLE_GROWS_FROM(n) (RSI_PICKLE_GROWS | (unsigned)(n) << 8)

/* A name that the caller knows. */
typedef struct rsi_pickle_class {
    const char *module, *name;
    int         id; /* at least 0; several names may share one */
    unsigned    fold;
} rsi_pickle_class;

/* torch's dtypes for a list of classes: item("bool"), item("uint8") and so on. */
#define RSI_TORCH_DTYPES(item)                                                                     \
    item("bool"), item("uint8"), item("int8"), item("uint16"), item("int16"), item("uint32"),      \
        item("int32"), item("uint64"), item("int64"), item("float16"), item("bfloat16"),           \
        item("float32"), item("float64"), item("complex32"), item("complex64"),                    \
        item("complex128"), item("float8_e4m3fn"), item("float8_e5m2"), item("float8_e4m3fnuz"),   \
        item("float8_e5m2fnuz"), item("float8_e8m0fnu"), item("float4_e2m1fn_x2")

typedef enum rsi_pickle_how {
    RSI_PICKLE_REDUCE,
    RSI_PICKLE_NEWOBJ,
    RSI_PICKLE_NEWOBJ_EX
} rsi_pickle_how;

/* The call that REDUCE, NEWOBJ or NEWOBJ_EX would make, and the state that BUILD would set. */
typedef struct rsi_pickle_object {
    rsi_pv   callee; /* a class, or an object: the result of another call */
    rsi_pv   args;   /* a tuple; for NEWOBJ_EX a tuple of the arguments and the dict of keywords */
    rsi_pv   state;  /* GONE if there was no BUILD */
    rsi_pv   items;  /* list or dict of items added after the call; GONE: none */
    uint64_t at;     /* byte of the opcode that called, from the source's start */
    rsi_pickle_how how;
    int            id;   /* of the class; -1 if it is not listed or not a class */
    bool           keep; /* a hook sets it if others may share the state: its memory then stays */
} rsi_pickle_object;

/* Replaces a call (state is GONE) or an object that just got its state with *out: a user value,
 * text, an integer tuple or a constant, not a container. The memory of the object and of everything
 * made since is then reused; text, classes and integer tuples stay, and only these may be kept. */
typedef rsd_err (*rsi_pickle_fold)(void *arg, const rsi_pickle *p, rsi_pickle_object *object,
                                   rsi_pv *out, rsd_error *err);

typedef struct rsi_pickle_options {
    const rsi_pickle_class *classes; /* lives as long as the reader */
    size_t                  nclasses;
    rsi_pickle_fold         fold; /* may be NULL if no class has a fold flag */
    void                   *arg;
    /* Limits; 0 is the default. */
    uint64_t max_input; /* bytes; 1 GiB */
    size_t   max_stack; /* values; 1 Mi */
    size_t   max_text;  /* bytes of one str; 16 MiB. `bytes` may be longer */
    size_t   window;    /* bytes of input per read; 256 KiB */
} rsi_pickle_options;

/* Bytes of memory that everything read from `size` bytes of metadata may take: the worst case of
 * small files, and 8 per byte of large ones. */
static inline size_t rsi_pickle_limit(uint64_t size)
{
    uint64_t small = ((uint64_t)1 << 20) + 16 * size, large = ((uint64_t)48 << 20) + 8 * size;

    return (size_t)(small < large ? small : large);
}

/* ---- Reading ---- */

rsd_err rsi_pickle_create(const rsi_pickle_options *options, rsi_pickle **out, rsd_error *err);
void    rsi_pickle_free(rsi_pickle *p);

/* The value of text that is looked up often. Call it before any read; the value stays valid for all
 * reads. GONE: no memory. */
rsi_pv rsi_pickle_intern(rsi_pickle *p, const char *text);
/* Reads one pickle. The reader may be reused, which invalidates all values of the read before.
 * Takes at most rsi_pickle_limit bytes of memory. *used (may be NULL): the bytes up to and
 * including STOP. */
rsd_err rsi_pickle_read(rsi_pickle *p, const rsi_source *source, rsi_pv *root, uint64_t *used,
                        rsd_error *err);
/* Frees what only reading needs (stack, memo, window): the values stay. */
void rsi_pickle_trim(rsi_pickle *p);
/* Bytes of memory in use. */
size_t rsi_pickle_memory(const rsi_pickle *p);
/* Bytes of the source that was read last. */
uint64_t rsi_pickle_size(const rsi_pickle *p);
/* False if it has a frozenset, a bytearray or a Python 2 string by an opcode of its own: as values
 * these can't be told from sets and bytes. */
bool rsi_pickle_is_exact(const rsi_pickle *p);

/* The first name outside the list, except in ignored attributes (RSI_PICKLE_GROWS). */
typedef struct rsi_pickle_unlisted {
    const char *module, *name; /* followed by a NUL; live as long as the values */
    uint64_t    at;            /* byte of the opcode that names or calls it */
} rsi_pickle_unlisted;
/* True if the pickle would call something outside the list, so that loading it in Python could run
 * foreign code. */
bool rsi_pickle_calls_unlisted(const rsi_pickle *p, rsi_pickle_unlisted *out);
/* True if the pickle names something outside the list, called or not. */
bool rsi_pickle_names_unlisted(const rsi_pickle *p, rsi_pickle_unlisted *out);

/* ---- Values ---- */

rsi_pickle_kind    rsi_pickle_kind_of(const rsi_pickle *p, rsi_pv v);
rsi_pv             rsi_pickle_none(void);
static inline bool rsi_pickle_is_str(rsi_pv v)
{
    return (v & 15) == RSI_PICKLE_TAG_STR;
}
static inline bool rsi_pickle_is_ints(rsi_pv v)
{
    return (v & 15) == RSI_PICKLE_TAG_INTS;
}
static inline bool rsi_pickle_is_user(rsi_pv v)
{
    return (v & 15) == RSI_PICKLE_TAG_USER;
}
/* For hooks; n < 2^28. */
static inline rsi_pv rsi_pickle_user(uint32_t n)
{
    return n << 4 | RSI_PICKLE_TAG_USER;
}
static inline uint32_t rsi_pickle_user_of(rsi_pv v)
{
    return v >> 4;
}
/* True and *out set if v is an INT (not a bool). */
bool   rsi_pickle_int(const rsi_pickle *p, rsi_pv v, int64_t *out);
double rsi_pickle_float(const rsi_pickle *p, rsi_pv v);
/* Of STR, BYTES and BIGINT, followed by a NUL; NULL for other kinds. Valid until the next read, or
 * the end of the hook. */
const char *rsi_pickle_bytes(const rsi_pickle *p, rsi_pv v, size_t *len);
const char *rsi_pickle_text(const rsi_pickle *p,
                            rsi_pv v); /* the same without length, "?" for NULL: for messages */
rsi_pv      rsi_pickle_persid(const rsi_pickle *p, rsi_pv v);
/* The number of integers and the first `cap` of them if v is INTS, else -1. */
int rsi_pickle_ints(const rsi_pickle *p, rsi_pv v, int64_t *out, int cap);
/* A dense number for a str, bytes or short tuple of integers (as above), below rsi_pickle_nshared;
 * for tables. */
static inline uint32_t rsi_pickle_shared(rsi_pv v)
{
    return v >> 4;
}
uint32_t rsi_pickle_nshared(const rsi_pickle *p);

/* The names of a class; returns its id, -1 if it is not listed. */
int rsi_pickle_class_of(const rsi_pickle *p, rsi_pv v, const char **module, const char **name);
rsi_pickle_object rsi_pickle_object_of(const rsi_pickle *p, rsi_pv v);

/* Walks TUPLE, LIST, SET and DICT (keys and values alternate); any other kind is empty. */
typedef struct rsi_pickle_iter {
    uint32_t at, left; /* cells */
    uint32_t next;     /* segment; 0: none */
    uint32_t last;
} rsi_pickle_iter;
rsi_pickle_iter rsi_pickle_each(const rsi_pickle *p, rsi_pv v);
bool            rsi_pickle_next(const rsi_pickle *p, rsi_pickle_iter *it, rsi_pv *out);
/* How many values the walk gives; for a dict, keys plus values. */
size_t rsi_pickle_count(const rsi_pickle *p, rsi_pv v);
/* The first `cap` of them; returns the count. */
size_t rsi_pickle_items(const rsi_pickle *p, rsi_pv v, rsi_pv *out, size_t cap);
/* Looks up n keys of a dict: value[i] is set to that of key[i], the last one if it is a duplicate,
 * and left alone if missing. *others is set to the number of pairs that have other keys. False if
 * it is not a dict. */
bool rsi_pickle_lookup(const rsi_pickle *p, rsi_pv dict, int n, const rsi_pv *key, rsi_pv *value,
                       size_t *others);

#endif

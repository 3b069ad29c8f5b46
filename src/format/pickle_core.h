/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the pickle reader: how values are stored. Included only by pickle*.c.
 *
 * A value is 28 bits of payload and 4 of tag. Constants and small integers are in the payload.
 * Text, integer tuples and classes are numbers in the intern table, where equal ones are kept once.
 * Everything else starts at a cell:
 *
 *     tuple            n, value * n
 *     list, dict, set  last segment (0: empty); a segment is n, next, value * n;
 *                      the last one's next is the first
 *     object           callee, args, state, items, byte of the opcode
 *     box              INT64 lo hi | FLOAT lo hi | BIGINT text | PERSID value
 *
 * Cells are only added at the end, except when an object folds: then the end goes back to where the
 * object began. */
#ifndef RSI_PICKLE_CORE_H
#define RSI_PICKLE_CORE_H

#include "base/mem.h"
#include "format/pickle.h"

enum tag {
    TAG_CONST,
    TAG_INT, /* payload - INT_BIAS */
    TAG_STR = RSI_PICKLE_TAG_STR,
    TAG_BYTES,
    TAG_INTS = RSI_PICKLE_TAG_INTS,
    TAG_CLASS, /* the text is a class_ref */
    TAG_USER = RSI_PICKLE_TAG_USER,
    TAG_TUPLE, /* this and the tags below: a cell */
    TAG_LIST,
    TAG_DICT,
    TAG_SET,
    TAG_OBJECT,
    TAG_BOX
};

enum { CONST_NONE, CONST_FALSE, CONST_TRUE, CONST_GONE };
enum { BOX_INT64, BOX_FLOAT, BOX_BIGINT, BOX_PERSID };
enum { OBJECT_AT_BITS = 30 }; /* the two bits above them say how it is called */
enum { OBJECT_CALLEE, OBJECT_ARGS, OBJECT_STATE, OBJECT_ITEMS, OBJECT_AT, OBJECT_CELLS };

#define PAYLOAD_MAX UINT32_C(0x0fffffff)
#define INT_BIAS    ((int64_t)1 << 27)
#define NO_CLASS    UINT32_MAX
#define MAX_INTS    32

static inline rsi_pv pv(enum tag tag, uint32_t payload)
{
    return payload << 4 | (uint32_t)tag;
}

static inline enum tag pv_tag(rsi_pv v)
{
    return (enum tag)(v & 15);
}

static inline uint32_t pv_payload(rsi_pv v)
{
    return v >> 4;
}

#define PV_NONE  ((rsi_pv)(CONST_NONE << 4))
#define PV_FALSE ((rsi_pv)(CONST_FALSE << 4))
#define PV_TRUE  ((rsi_pv)(CONST_TRUE << 4))
#define PV_GONE  ((rsi_pv)(CONST_GONE << 4))

static inline uint64_t object_at(const uint32_t *cell)
{
    return cell[OBJECT_AT] & (((uint32_t)1 << OBJECT_AT_BITS) - 1);
}

static inline rsi_pickle_how object_how(const uint32_t *cell)
{
    return (rsi_pickle_how)(cell[OBJECT_AT] >> OBJECT_AT_BITS);
}

/* A growing array of 32-bit words. */
typedef struct words {
    uint32_t *at;
    size_t    n, cap;
} words;

/* Bytes kept once. The kind keeps text, bytes and integers apart. */
typedef struct shared {
    uint32_t off;      /* in `text` */
    uint32_t len_kind; /* length << 2 | kind */
    uint32_t hash;
} shared;
enum { SHARED_STR, SHARED_BYTES, SHARED_INTS, SHARED_CLASS };

typedef struct class_ref {
    rsi_pv   module, name;
    uint32_t place; /* in the caller's list, or NO_CLASS */
} class_ref;

typedef struct intern {
    shared   *entry;
    size_t    n, cap;
    uint32_t *slot; /* [nslots] entry + 1; 0: free */
    size_t    nslots;
    char     *text;
    size_t    text_n, text_cap;
} intern;

/* An object of a class that folds, still on the stack and without its state. */
typedef struct open_object {
    uint32_t cell;   /* of the object: a fold removes everything from here on */
    uint32_t oldest; /* first cell changed since; if below `cell`, it may refer to removed cells */
    size_t   depth;  /* values on the stack up to and including it */
    size_t   nmemo;
} open_object;

/* DCP needs 2. Limited because a fold searches the memo entries made since the object began. */
enum { MAX_OPEN = 16 };

struct rsi_pickle {
    rsi_pickle_options options;
    rsi_pv            *class_name; /* [2 * nclasses] module, name */

    words  cell, stack, memo, mark;
    size_t room;  /* values that fit on the stack before it must grow */
    size_t fence; /* stack entries below the last mark are out of reach */
    size_t nput;
    intern shared;
    size_t shared_base, text_base; /* sizes with only rsi_pickle_intern's entries */
    rsi_pv empty_tuple;

    open_object open[MAX_OPEN];
    size_t      nopen;
    size_t      open_depth; /* a stack below this has lost the innermost open object; 0: none */

    size_t memory, limit; /* bytes */

    /* Input: [op, end) are buffered bytes, `op` the current opcode, `at` the next byte. `begin` is
     * byte `base` of the source. */
    const rsi_source    *source;
    const unsigned char *begin, *op, *at, *end;
    uint64_t             base;
    unsigned char       *window;
    size_t               window_cap;

    uint64_t size;   /* of the source */
    bool     done;   /* STOP was read */
    bool     merged; /* rsi_pickle_is_exact */
    struct {
        uint64_t at;
        rsi_pv class;
        bool seen;
    } named, called; /* the first outside the list */

    rsd_error *err;
};

/* Byte of the current opcode, from the source's start. */
static inline uint64_t op_at(const rsi_pickle *p)
{
    return p->base + (uint64_t)(p->op - p->begin);
}

/* The same, in the file. */
static inline uint64_t rsi_pickle_place(const rsi_pickle *p)
{
    return p->source ? p->source->start + op_at(p) : 0;
}

/* rsi_fail with "byte N: " in front, the place of the current opcode. */
rsd_err rsi_pickle_fail(const rsi_pickle *p, rsd_err code, const char *fmt, ...)
    RSI_PRINTF(3, 4) RSI_COLD;

/* ---- pickle_heap.c ---- */

/* Grows an array to at least `need` elements, within the limit; *array is replaced. */
rsd_err rsi_pickle_reserve(rsi_pickle *p, void **array, size_t *cap, size_t need, size_t size);
rsd_err rsi_pickle_more_words(rsi_pickle *p, words *w, size_t need);
rsd_err rsi_pickle_share(rsi_pickle *p, int kind, const void *bytes, size_t len, uint32_t *out);
/* Forgets everything except the entries of rsi_pickle_intern. */
void    rsi_pickle_share_reset(rsi_pickle *p);
rsd_err rsi_pickle_more_stack(rsi_pickle *p);
rsd_err rsi_pickle_more_cells(rsi_pickle *p, size_t n);
/* Adds values to a list, set or dict. */
rsd_err rsi_pickle_extend(rsi_pickle *p, rsi_pv container, const rsi_pv *v, size_t n);
/* Buffers at least n bytes from `at` on; an error if the input has fewer. */
rsd_err rsi_pickle_refill(rsi_pickle *p, size_t n);

static inline rsd_err push_word(rsi_pickle *p, words *w, uint32_t word)
{
    if (w->n == w->cap) {
        rsd_err rc = rsi_pickle_more_words(p, w, w->n + 1);

        if (rc)
            return rc;
    }
    w->at[w->n++] = word;
    return RSD_OK;
}

/* Adds n cells at the end; *out is the first. */
static inline rsd_err add_cells(rsi_pickle *p, size_t n, uint32_t *out)
{
    words *w = &p->cell;

    if (w->cap - w->n < n || n > PAYLOAD_MAX - w->n) {
        rsd_err rc = rsi_pickle_more_cells(p, n);

        if (rc)
            return rc;
    }
    *out = (uint32_t)w->n;
    w->n += n;
    return RSD_OK;
}

/* ---- pickle_op.c ---- */

/* Runs the opcodes up to STOP; the result is the only value left on the stack. */
rsd_err rsi_pickle_run(rsi_pickle *p);

/* ---- pickle_call.c ---- */

class_ref rsi_pickle_class_ref(const rsi_pickle *p, rsi_pv class);

/* The class of an object, from the caller's list; NULL if not listed. */
static inline const rsi_pickle_class *listed_class(const rsi_pickle *p, rsi_pv callee)
{
    uint32_t place;

    if (pv_tag(callee) != TAG_CLASS)
        return NULL;
    memcpy(&place,
           p->shared.text + p->shared.entry[pv_payload(callee)].off + offsetof(class_ref, place),
           sizeof(place));
    return place == NO_CLASS ? NULL : &p->options.classes[place];
}
rsd_err rsi_pickle_class_make(rsi_pickle *p, rsi_pv module, rsi_pv name, rsi_pv *out);
/* The object that stands for a call. *opens: it awaits its state, to be folded. */
rsd_err rsi_pickle_call(rsi_pickle *p, rsi_pickle_how how, rsi_pv callee, rsi_pv args, rsi_pv *out,
                        bool *opens);
/* From now on, the object on top of the stack awaits its state. */
rsd_err rsi_pickle_open(rsi_pickle *p, rsi_pv object);
/* The object at `place` in the stack gets its state; *out is the object or what it folds to. */
rsd_err rsi_pickle_build(rsi_pickle *p, size_t place, rsi_pv state, rsi_pv *out);
void    rsi_pickle_close(rsi_pickle *p); /* objects that left the stack are no longer open */

/* A container or object that starts at `cell` has been changed. */
static inline void note_change(rsi_pickle *p, uint32_t cell)
{
    if (p->nopen && cell < p->open[p->nopen - 1].oldest)
        p->open[p->nopen - 1].oldest = cell;
}

/* ---- pickle_push.c ---- */

/* The argument is the size in bytes of the value, or of its length; for op_const the constant. */
rsd_err rsi_pickle_op_const(rsi_pickle *p, int constant);
rsd_err rsi_pickle_op_uint(rsi_pickle *p, int bytes);
rsd_err rsi_pickle_op_int(rsi_pickle *p, int bytes);
rsd_err rsi_pickle_op_long(rsi_pickle *p, int len_bytes);
rsd_err rsi_pickle_op_float(rsi_pickle *p, int bytes);
rsd_err rsi_pickle_op_text(rsi_pickle *p, int len_bytes);
rsd_err rsi_pickle_op_bytes(rsi_pickle *p, int len_bytes);

/* ---- Stack and input ---- */

static inline rsd_err need_bytes(rsi_pickle *p, size_t n)
{
    return (size_t)(p->end - p->at) >= n ? RSD_OK : rsi_pickle_refill(p, n);
}

/* 1, 2, 4 or 8 bytes, or as many as an integer has; the common sizes without a loop. */
static inline uint64_t take_le(rsi_pickle *p, int n)
{
    const unsigned char *b = p->at;
    uint64_t             v = b[0];

    if (n == 2)
        v |= (uint64_t)b[1] << 8;
    else if (n == 4)
        v = v | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24;
    else
        for (int i = 1; i < n; i++)
            v |= (uint64_t)b[i] << 8 * i;
    p->at += n;
    return v;
}

static inline rsd_err push(rsi_pickle *p, rsi_pv v)
{
    if (p->stack.n == p->room) {
        rsd_err rc = rsi_pickle_more_stack(p);

        if (rc)
            return rc;
    }
    p->stack.at[p->stack.n++] = v;
    return RSD_OK;
}

/* Requires n values above the last mark. */
static inline rsd_err need_values(rsi_pickle *p, size_t n)
{
    if (p->stack.n - p->fence < n)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "the opcode takes %zu values, the stack has %zu", n,
                               p->stack.n - p->fence);
    return RSD_OK;
}

static inline rsi_pv *top(rsi_pickle *p, size_t n)
{
    return p->stack.at + p->stack.n - n;
}

static inline void drop(rsi_pickle *p, size_t n)
{
    p->stack.n -= n;
    if (p->stack.n < p->open_depth)
        rsi_pickle_close(p);
}

/* Replaces the top n values, at least one, by `v`. */
static inline void swap_top(rsi_pickle *p, size_t n, rsi_pv v)
{
    drop(p, n);
    p->stack.at[p->stack.n++] = v;
}

/* Removes the last mark; *n values are above it. */
static inline rsd_err take_mark(rsi_pickle *p, size_t *n)
{
    if (p->mark.n == 0)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "the opcode needs a MARK before it");
    *n = p->stack.n - p->fence;
    p->mark.n--;
    p->fence = p->mark.at[p->mark.n]; /* each mark stores the fence before it */
    return RSD_OK;
}

#endif

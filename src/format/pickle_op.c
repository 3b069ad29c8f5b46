/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes of pickles, protocols 2 to 5: the table, containers, stack and memo. None runs
 * anything. Those that push numbers and text are in pickle_push.c, those that would call in
 * pickle_call.c; unsupported opcodes are refused by name. */
#include "format/pickle_core.h"

enum { MAX_LINE = 1 << 16 }; /* bytes of the name of a module or class */

/* ---- Containers ---- */

static rsd_err op_empty(rsi_pickle *p, int tag)
{
    uint32_t at;
    rsd_err  rc = add_cells(p, 1, &at);

    if (rc)
        return rc;
    p->cell.at[at] = 0;
    return push(p, pv((enum tag)tag, at));
}

static rsd_err op_empty_tuple(rsi_pickle *p, int arg)
{
    (void)arg;
    return push(p, p->empty_tuple);
}

/* True if all are integers, which are stored in `out`. */
static bool all_ints(const rsi_pickle *p, const rsi_pv *v, size_t n, int64_t *out)
{
    for (size_t i = 0; i < n; i++)
        if (pv_tag(v[i]) == TAG_INT)
            out[i] = (int64_t)pv_payload(v[i]) - INT_BIAS;
        else if (!rsi_pickle_int(p, v[i], &out[i]))
            return false;
    return true;
}

/* Turns the top n values, at least one, into one tuple. */
static rsd_err join_tuple(rsi_pickle *p, size_t n)
{
    int64_t  ints[MAX_INTS];
    uint32_t at;
    rsi_pv   tuple;
    rsd_err  rc;

    if (n <= MAX_INTS && all_ints(p, top(p, n), n, ints)) {
        rc = rsi_pickle_share(p, SHARED_INTS, ints, n * sizeof(ints[0]), &at);
        tuple = pv(TAG_INTS, at);
    } else {
        rc = add_cells(p, n + 1, &at);
        if (!rc) {
            p->cell.at[at] = (uint32_t)n;
            for (size_t i = 0; i < n; i++)
                p->cell.at[at + 1 + i] = top(p, n)[i];
        }
        tuple = pv(TAG_TUPLE, at);
    }
    if (!rc)
        swap_top(p, n, tuple);
    return rc;
}

/* n == 0: all above the mark */
static rsd_err op_tuple(rsi_pickle *p, int n)
{
    size_t  count = (size_t)n;
    rsd_err rc = n ? need_values(p, count) : take_mark(p, &count);

    if (rc)
        return rc;
    return count ? join_tuple(p, count) : push(p, p->empty_tuple);
}

/* What SETITEMS and APPENDS change: a container, or the items that an object keeps beside its
 * state. */
static rsd_err container_of(rsi_pickle *p, rsi_pv v, enum tag want, rsi_pv *out)
{
    static const char *const what[] = {
        [TAG_LIST] = "list", [TAG_DICT] = "dict", [TAG_SET] = "set"
    };
    uint32_t at = pv_payload(v), items;
    rsd_err  rc;

    if (pv_tag(v) == TAG_OBJECT && want != TAG_SET) {
        if (p->cell.at[at + OBJECT_ITEMS] == PV_GONE) {
            rc = add_cells(p, 1, &items);
            if (rc)
                return rc;
            p->cell.at[items] = 0;
            p->cell.at[at + OBJECT_ITEMS] = pv(want, items);
            note_change(p, at);
        }
        v = p->cell.at[at + OBJECT_ITEMS];
    }
    if (pv_tag(v) != want)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "the opcode adds to a %s, but there is none",
                               what[want]);
    *out = v;
    return RSD_OK;
}

/* Moves the top n values into the container below them. */
static rsd_err add_top(rsi_pickle *p, size_t n, enum tag want)
{
    rsi_pv  container = PV_GONE;
    rsd_err rc = need_values(p, n + 1);

    if (!rc && want == TAG_DICT && n % 2)
        rc = rsi_pickle_fail(p, RSD_E_FORMAT, "a dict gets a key without a value");
    if (!rc)
        rc = container_of(p, *top(p, n + 1), want, &container);
    if (!rc)
        rc = rsi_pickle_extend(p, container, top(p, n), n);
    if (!rc)
        drop(p, n);
    return rc;
}

static rsd_err op_add(rsi_pickle *p, int tag)
{
    return add_top(p, tag == TAG_DICT ? 2 : 1, (enum tag)tag);
}

static rsd_err op_add_all(rsi_pickle *p, int tag)
{
    size_t  n = 0;
    rsd_err rc = take_mark(p, &n);

    return rc ? rc : add_top(p, n, (enum tag)tag);
}

/* Turns the values above the mark into a new container. */
static rsd_err op_join(rsi_pickle *p, int tag)
{
    uint32_t at;
    size_t   n = 0;
    rsd_err  rc = take_mark(p, &n);

    p->merged = p->merged || tag == TAG_SET;
    if (!rc && tag == TAG_DICT && n % 2)
        rc = rsi_pickle_fail(p, RSD_E_FORMAT, "a dict gets a key without a value");
    if (!rc)
        rc = add_cells(p, 1, &at);
    if (rc)
        return rc;
    p->cell.at[at] = 0;
    rc = rsi_pickle_extend(p, pv((enum tag)tag, at), top(p, n), n);
    if (rc)
        return rc;
    drop(p, n);
    return push(p, pv((enum tag)tag, at));
}

/* ---- Stack and memo ---- */

static rsd_err op_mark(rsi_pickle *p, int arg)
{
    rsd_err rc = push_word(p, &p->mark, (uint32_t)p->fence);

    (void)arg;
    if (!rc)
        p->fence = p->stack.n;
    return rc;
}

static rsd_err op_pop(rsi_pickle *p, int arg)
{
    size_t n = 0;

    (void)arg;
    if (p->stack.n == p->fence)
        return take_mark(p, &n); /* a POP right after a MARK takes the mark, as in Python */
    drop(p, 1);
    return RSD_OK;
}

static rsd_err op_pop_mark(rsi_pickle *p, int arg)
{
    size_t  n = 0;
    rsd_err rc = take_mark(p, &n);

    (void)arg;
    if (!rc)
        drop(p, n);
    return rc;
}

static rsd_err op_dup(rsi_pickle *p, int arg)
{
    rsd_err rc = need_values(p, 1);

    (void)arg;
    return rc ? rc : push(p, *top(p, 1));
}

static rsd_err op_memoize(rsi_pickle *p, int arg)
{
    rsd_err rc = need_values(p, 1);

    (void)arg;
    if (!rc)
        rc = push_word(p, &p->memo, *top(p, 1));
    if (!rc)
        p->nput++;
    return rc;
}

/* Memo places are dense: Python counts them from 0, Python 2 from 1. A distant place would cost
 * memory out of proportion to the input. */
static rsd_err op_put(rsi_pickle *p, int len_bytes)
{
    uint64_t place;
    rsd_err  rc = need_bytes(p, (size_t)len_bytes);

    if (!rc)
        rc = need_values(p, 1);
    if (rc)
        return rc;
    place = take_le(p, len_bytes);
    if (place > (uint64_t)p->nput + 1)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "memo place %" PRIu64 " after only %zu values",
                               place, p->nput);
    if (place < p->memo.n)
        note_change(p, 0);
    while (!rc && p->memo.n <= place)
        rc = push_word(p, &p->memo, PV_GONE);
    if (rc)
        return rc;
    p->memo.at[place] = *top(p, 1);
    p->nput++;
    return RSD_OK;
}

static rsd_err refuse_place(rsi_pickle *p, uint64_t place)
{
    return place >= p->memo.n
               ? rsi_pickle_fail(p, RSD_E_FORMAT, "memo place %" PRIu64 " is empty", place)
               : rsi_pickle_fail(p, RSD_E_FORMAT,
                                 "memo place %" PRIu64
                                 " is empty or part of an object that is already closed",
                                 place);
}

static inline rsd_err get(rsi_pickle *p, int len_bytes)
{
    uint64_t place;
    rsd_err  rc = need_bytes(p, (size_t)len_bytes);

    if (rc)
        return rc;
    place = take_le(p, len_bytes);
    if (place >= p->memo.n || p->memo.at[place] == PV_GONE)
        return refuse_place(p, place);
    return push(p, p->memo.at[place]);
}

static rsd_err op_get(rsi_pickle *p, int len_bytes)
{
    return get(p, len_bytes);
}

/* ---- The rest ---- */

static rsd_err op_proto(rsi_pickle *p, int arg)
{
    rsd_err rc = need_bytes(p, 1);

    (void)arg;
    if (!rc && *p->at > 5)
        return rsi_pickle_fail(p, RSD_E_UNSUPPORTED,
                               "pickle protocol %d is not supported, only 2 to 5 are", *p->at);
    p->at += !rc;
    return rc;
}

/* Frames only help readers that prefetch; their length is still checked. */
static rsd_err op_frame(rsi_pickle *p, int arg)
{
    uint64_t len, behind;
    rsd_err  rc = need_bytes(p, 8);

    (void)arg;
    if (rc)
        return rc;
    len = take_le(p, 8);
    behind = p->source->size - p->base - (uint64_t)(p->at - p->begin);
    if (len > behind)
        return rsi_pickle_fail(
            p, RSD_E_FORMAT, "a frame of %" PRIu64 " bytes, the pickle has %" PRIu64, len, behind);
    return RSD_OK;
}

static rsd_err op_stop(rsi_pickle *p, int arg)
{
    (void)arg;
    if (p->mark.n || p->stack.n != 1)
        return rsi_pickle_fail(p, RSD_E_FORMAT,
                               "the pickle stops with %zu values on its stack instead of 1",
                               p->stack.n);
    p->done = true;
    return RSD_OK;
}

/* Bytes up to the end of the line, which are buffered a block at a time. */
static rsd_err find_line_end(rsi_pickle *p, size_t *len)
{
    rsd_err rc = need_bytes(p, 1);

    for (size_t seen = 0; !rc; rc = need_bytes(p, seen + 1)) {
        const unsigned char *end = memchr(p->at + seen, '\n', (size_t)(p->end - p->at) - seen);

        seen = (size_t)((end ? end : p->end) - p->at);
        *len = seen;
        if (end)
            return RSD_OK;
        if (seen > MAX_LINE)
            return rsi_pickle_fail(p, RSD_E_FORMAT, "the name of a class has more than %d bytes",
                                   MAX_LINE);
    }
    return rc;
}

/* "module\nname\n" */
static rsd_err op_global(rsi_pickle *p, int arg)
{
    rsi_pv  line[2], class;
    rsd_err rc;

    (void)arg;
    for (int i = 0; i < 2; i++) {
        uint32_t entry;
        size_t   len = 0;

        rc = find_line_end(p, &len);
        if (!rc)
            rc = rsi_pickle_share(p, SHARED_STR, p->at, len, &entry);
        if (rc)
            return rc;
        p->at += len + 1;
        line[i] = pv(TAG_STR, entry);
    }
    rc = rsi_pickle_class_make(p, line[0], line[1], &class);
    return rc ? rc : push(p, class);
}

static rsd_err op_stack_global(rsi_pickle *p, int arg)
{
    rsi_pv class, module, name;
    rsd_err rc = need_values(p, 2);

    (void)arg;
    if (!rc && (pv_tag(*top(p, 1)) != TAG_STR || pv_tag(*top(p, 2)) != TAG_STR))
        rc = rsi_pickle_fail(p, RSD_E_FORMAT, "a class whose name is not a str");
    if (rc)
        return rc;
    module = *top(p, 2);
    name = *top(p, 1);
    drop(p, 2);
    rc = rsi_pickle_class_make(p, module, name, &class);
    return rc ? rc : push(p, class);
}

/* The legacy form of torch.save stores the source of a module's class where it is first named:
 * ("module", class, file, source). It stands for the class. */
static bool is_class_of_module(const rsi_pickle *p, rsi_pv id, rsi_pv *class)
{
    rsi_pv part[2];

    if (rsi_pickle_items(p, id, part, 2) != 4 || pv_tag(part[1]) != TAG_CLASS ||
        pv_tag(part[0]) != TAG_STR || strcmp(rsi_pickle_text(p, part[0]), "module") != 0)
        return false;
    *class = part[1];
    return true;
}

static rsd_err op_persid(rsi_pickle *p, int arg)
{
    uint32_t at;
    rsi_pv class;
    rsd_err rc = need_values(p, 1);

    (void)arg;
    if (!rc && is_class_of_module(p, *top(p, 1), &class)) {
        *top(p, 1) = class;
        return RSD_OK;
    }
    if (!rc)
        rc = add_cells(p, 2, &at);
    if (rc)
        return rc;
    p->cell.at[at] = BOX_PERSID;
    p->cell.at[at + 1] = *top(p, 1);
    drop(p, 1);
    return push(p, pv(TAG_BOX, at));
}

/* REDUCE, NEWOBJ: callee and args. NEWOBJ_EX: keywords too, which join the args. */
static rsd_err op_call(rsi_pickle *p, int how)
{
    rsi_pv  object;
    bool    opens;
    rsd_err rc = need_values(p, how == RSI_PICKLE_NEWOBJ_EX ? 3 : 2);

    if (!rc && how == RSI_PICKLE_NEWOBJ_EX)
        rc = join_tuple(p, 2);
    if (!rc)
        rc = rsi_pickle_call(p, (rsi_pickle_how)how, *top(p, 2), *top(p, 1), &object, &opens);
    if (rc)
        return rc;
    swap_top(p, 2, object);
    return opens ? rsi_pickle_open(p, object) : RSD_OK;
}

static rsd_err op_build(rsi_pickle *p, int arg)
{
    rsi_pv  object;
    rsd_err rc = need_values(p, 2);

    (void)arg;
    if (!rc)
        rc = rsi_pickle_build(p, p->stack.n - 2, *top(p, 1), &object);
    if (rc)
        return rc;
    *top(p, 2) = object;
    drop(p, 1);
    return RSD_OK;
}

/* ---- The table ---- */

/* Only a name: known, but refused. Zero: not an opcode. */
static const struct op {
    const char *name;
    rsd_err (*run)(rsi_pickle *p, int arg);
    int arg;
} ops[256] = {
    [0x80] = { "PROTO", op_proto, 0 },
    [0x95] = { "FRAME", op_frame, 0 },
    ['.'] = { "STOP", op_stop, 0 },
    ['N'] = { "NONE", rsi_pickle_op_const, CONST_NONE },
    [0x88] = { "NEWTRUE", rsi_pickle_op_const, CONST_TRUE },
    [0x89] = { "NEWFALSE", rsi_pickle_op_const, CONST_FALSE },
    ['K'] = { "BININT1", rsi_pickle_op_uint, 1 },
    ['M'] = { "BININT2", rsi_pickle_op_uint, 2 },
    ['J'] = { "BININT", rsi_pickle_op_int, 4 },
    [0x8a] = { "LONG1", rsi_pickle_op_long, 1 },
    [0x8b] = { "LONG4", rsi_pickle_op_long, 4 },
    ['G'] = { "BINFLOAT", rsi_pickle_op_float, 8 },
    [0x8c] = { "SHORT_BINUNICODE", rsi_pickle_op_text, 1 },
    ['X'] = { "BINUNICODE", rsi_pickle_op_text, 4 },
    [0x8d] = { "BINUNICODE8", rsi_pickle_op_text, 8 },
    ['U'] = { "SHORT_BINSTRING", rsi_pickle_op_bytes, -1 },
    ['T'] = { "BINSTRING", rsi_pickle_op_bytes, -4 },
    ['C'] = { "SHORT_BINBYTES", rsi_pickle_op_bytes, 1 },
    ['B'] = { "BINBYTES", rsi_pickle_op_bytes, 4 },
    [0x8e] = { "BINBYTES8", rsi_pickle_op_bytes, 8 },
    [0x96] = { "BYTEARRAY8", rsi_pickle_op_bytes, -8 },
    [')'] = { "EMPTY_TUPLE", op_empty_tuple, 0 },
    ['t'] = { "TUPLE", op_tuple, 0 },
    [0x85] = { "TUPLE1", op_tuple, 1 },
    [0x86] = { "TUPLE2", op_tuple, 2 },
    [0x87] = { "TUPLE3", op_tuple, 3 },
    [']'] = { "EMPTY_LIST", op_empty, TAG_LIST },
    ['}'] = { "EMPTY_DICT", op_empty, TAG_DICT },
    [0x8f] = { "EMPTY_SET", op_empty, TAG_SET },
    ['a'] = { "APPEND", op_add, TAG_LIST },
    ['e'] = { "APPENDS", op_add_all, TAG_LIST },
    ['s'] = { "SETITEM", op_add, TAG_DICT },
    ['u'] = { "SETITEMS", op_add_all, TAG_DICT },
    [0x90] = { "ADDITEMS", op_add_all, TAG_SET },
    ['l'] = { "LIST", op_join, TAG_LIST },
    ['d'] = { "DICT", op_join, TAG_DICT },
    [0x91] = { "FROZENSET", op_join, TAG_SET },
    ['('] = { "MARK", op_mark, 0 },
    ['0'] = { "POP", op_pop, 0 },
    ['1'] = { "POP_MARK", op_pop_mark, 0 },
    ['2'] = { "DUP", op_dup, 0 },
    [0x94] = { "MEMOIZE", op_memoize, 0 },
    ['q'] = { "BINPUT", op_put, 1 },
    ['r'] = { "LONG_BINPUT", op_put, 4 },
    ['h'] = { "BINGET", op_get, 1 },
    ['j'] = { "LONG_BINGET", op_get, 4 },
    ['c'] = { "GLOBAL", op_global, 0 },
    [0x93] = { "STACK_GLOBAL", op_stack_global, 0 },
    ['Q'] = { "BINPERSID", op_persid, 0 },
    ['R'] = { "REDUCE", op_call, RSI_PICKLE_REDUCE },
    [0x81] = { "NEWOBJ", op_call, RSI_PICKLE_NEWOBJ },
    [0x92] = { "NEWOBJ_EX", op_call, RSI_PICKLE_NEWOBJ_EX },
    ['b'] = { "BUILD", op_build, 0 },
    ['i'] = { "INST", NULL, 0 },
    ['o'] = { "OBJ", NULL, 0 },
    ['P'] = { "PERSID", NULL, 0 },
    [0x82] = { "EXT1", NULL, 0 },
    [0x83] = { "EXT2", NULL, 0 },
    [0x84] = { "EXT4", NULL, 0 },
    [0x97] = { "NEXT_BUFFER", NULL, 0 },
    [0x98] = { "READONLY_BUFFER", NULL, 0 },
    ['I'] = { "INT", NULL, 0 },
    ['L'] = { "LONG", NULL, 0 },
    ['F'] = { "FLOAT", NULL, 0 },
    ['S'] = { "STRING", NULL, 0 },
    ['V'] = { "UNICODE", NULL, 0 },
    ['p'] = { "PUT", NULL, 0 },
    ['g'] = { "GET", NULL, 0 },
};

static rsd_err refuse(rsi_pickle *p, unsigned char code)
{
    class_ref ref;

    if (!ops[code].name)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "0x%02x is not a pickle opcode", code);
    if (code == 'i' && op_global(p, 0) == RSD_OK) {
        ref = rsi_pickle_class_ref(p, *top(p, 1));
        return rsi_pickle_fail(p, RSD_E_FORMAT,
                               "the opcode INST, which would call \"%s.%s\", is refused",
                               rsi_pickle_text(p, ref.module), rsi_pickle_text(p, ref.name));
    }
    return rsi_pickle_fail(p, RSD_E_FORMAT, "the pickle opcode %s is refused", ops[code].name);
}

/* Runs one opcode. The first three make up half of a pickle, so they get an early branch. */
static inline rsd_err run_one(rsi_pickle *p)
{
    unsigned char    code = *p->at++;
    const struct op *op = &ops[code];

    if (code == 0x94)
        return op_memoize(p, 0);
    if (code == 'h')
        return get(p, 1);
    if (code == 'j')
        return get(p, 4);
    return op->run ? op->run(p, op->arg) : refuse(p, code);
}

rsd_err rsi_pickle_run(rsi_pickle *p)
{
    rsd_err rc = RSD_OK;

    while (!rc && !p->done) {
        p->op = p->at;
        if (p->at == p->end)
            rc = op_at(p) < p->size
                     ? rsi_pickle_refill(p, 1)
                     : rsi_pickle_fail(p, RSD_E_FORMAT, "the pickle ends without STOP");
        if (!rc)
            rc = run_one(p);
    }
    return rc;
}

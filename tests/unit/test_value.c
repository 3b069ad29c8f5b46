/* SPDX-License-Identifier: Apache-2.0 */
/* test_value.c - plain Python objects: made by hand, decoded from pickles that Python and torch
 * wrote, and printed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "format/value.h"

#include <math.h>
#include <stdlib.h>

/* {"step": 100, "lr": [0.1, 1e-5], "name": "a'b", "none": None, "flags": (True, False), 3: {"x":
 * 2**70}} */
static const char plain_pickle[] =
    "\x80\x04\x95^\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x04step\x94Kd\x8c\x02"
    "lr\x94]\x94(G\?\xb9\x99\x99\x99\x99\x99\x9aG>\xe4\xf8\xb5\x88\xe3h\xf1"
    "e"
    "\x8c\x04name\x94\x8c\x03"
    "a'b\x94\x8c\x04none\x94N\x8c\x05"
    "flags\x94\x88"
    "\x89\x86\x94K\x03}\x94\x8c\x01x\x94\x8a\x09\x00\x00\x00\x00\x00\x00\x00"
    "\x00@su.";

static const char protocol_2_pickle[] =
    "\x80\x02]q\x00(c_codecs\x0a"
    "encode\x0aq\x01X\x03\x00\x00\x00\x00\xc3\xbf"
    "q\x02X\x06\x00\x00\x00latin1q\x03\x86q\x04Rq\x05"
    "c__builtin__\x0aset\x0a"
    "q\x06]q\x07K\x07"
    "a\x85q\x08Rq\x09"
    "c__builtin__\x0a"
    "bytearray\x0aq\x0a"
    "h\x01X\x02\x00\x00\x00xyq\x0bh\x03\x86q\x0cRq\x0d\x85q\x0eRq\x0f"
    "c__bu"
    "iltin__\x0a"
    "bytes\x0aq\x10)Rq\x11"
    "ccollections\x0aOrderedDict\x0aq\x12"
    ")Rq\x13X\x01\x00\x00\x00kq\x14K\x01s\x8a\x09\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x01"
    "e.";

static const char torch_pickle[] =
    "\x80\x02]q\x00(ctorch\x0aSize\x0aq\x01K\x02K\x03\x86q\x02\x85q\x03Rq\x04"
    "ctorch\x0a"
    "bfloat16\x0aq\x05"
    "ctorch\x0a"
    "device\x0aq\x06X\x04\x00\x00"
    "\x00"
    "cudaq\x07K\x01\x86q\x08Rq\x09h\x06X\x03\x00\x00\x00"
    "cpuq\x0a\x85"
    "q\x0bRq\x0c"
    "e.";

static const char transposed_pickle[] =
    "\x80\x02"
    "ctorch._utils\x0a_rebuild_tensor_v2\x0aq\x00((X\x07\x00\x00\x00"
    "storageq\x01"
    "ctorch\x0a"
    "FloatStorage\x0aq\x02X\x01\x00\x00\x00"
    "0q\x03"
    "X\x03\x00\x00\x00"
    "cpuq\x04K\x0ctq\x05QK\x00K\x04K\x03\x86q\x06K\x01K\x04"
    "\x86q\x07\x89"
    "ccollections\x0aOrderedDict\x0aq\x08)Rq\x09tq\x0aRq\x0b.";

static const char uint16_pickle[] =
    "\x80\x02"
    "ctorch._utils\x0a_rebuild_tensor_v3\x0aq\x00((X\x07\x00\x00\x00"
    "storageq\x01"
    "ctorch.storage\x0aUntypedStorage\x0aq\x02X\x01\x00\x00\x00"
    "0q\x03X\x03\x00\x00\x00"
    "cpuq\x04K\x0ctq\x05QK\x00K\x02K\x03\x86q\x06K\x03"
    "K\x01\x86q\x07\x89"
    "ccollections\x0aOrderedDict\x0aq\x08)Rq\x09"
    "ctorch"
    "\x0auint16\x0aq\x0atq\x0bRq\x0c.";

static const char parameter_pickle[] =
    "\x80\x02}q\x00X\x01\x00\x00\x00wq\x01"
    "ctorch._utils\x0a_rebuild_parame"
    "ter\x0aq\x02"
    "ctorch._utils\x0a_rebuild_tensor_v2\x0aq\x03((X\x07\x00\x00"
    "\x00storageq\x04"
    "ctorch\x0a"
    "FloatStorage\x0aq\x05X\x01\x00\x00\x00"
    "0"
    "q\x06X\x03\x00\x00\x00"
    "cpuq\x07K\x02tq\x08QK\x00K\x02\x85q\x09K\x01\x85"
    "q\x0a\x89"
    "ccollections\x0aOrderedDict\x0aq\x0b)Rq\x0ctq\x0dRq\x0e\x88h"
    "\x0b)Rq\x0f\x87q\x10Rq\x11s.";

static const char conjugate_pickle[] =
    "\x80\x02"
    "ctorch._utils\x0a_rebuild_tensor_v2\x0aq\x00((X\x07\x00\x00\x00"
    "storageq\x01"
    "ctorch\x0a"
    "ComplexFloatStorage\x0aq\x02X\x01\x00\x00\x00"
    "0q\x03X\x03\x00\x00\x00"
    "cpuq\x04K\x02tq\x05QK\x00K\x02\x85q\x06K\x01\x85"
    "q\x07\x89"
    "ccollections\x0aOrderedDict\x0aq\x08)Rq\x09}q\x0aX\x04\x00\x00"
    "\x00"
    "conjq\x0b\x88stq\x0cRq\x0d.";

static const char foreign_pickle[] = "\x80\x04\x95&\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01\x8c\x08"
                                     "datetime\x94"
                                     "\x8c\x04"
                                     "date\x94\x93\x94"
                                     "C\x04\x07\xe4\x01\x01\x94\x85\x94R\x94"
                                     "e.";

#define PICKLE(text) text, sizeof(text) - 1

static rsd_values *owner;

static int set_up(void **state)
{
    (void)state;
    return (int)rsd_values_create(&owner, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    rsd_values_free(owner);
    return 0;
}

static const rsd_value *decode(const char *bytes, size_t len)
{
    rsi_source       source = rsi_memory_source(bytes, len, "test");
    rsi_value_pickle pickle = { 0 };
    rsd_error        err;

    if (rsi_value_read(&source, owner, &pickle, &err))
        fail_msg("%s", err.msg);
    return pickle.root;
}

static void refuse(const char *bytes, size_t len, rsd_err code, const char *message)
{
    rsi_source       source = rsi_memory_source(bytes, len, "test");
    rsi_value_pickle pickle = { 0 };
    rsd_error        err = { 0 };

    assert_int_equal(rsi_value_read(&source, owner, &pickle, &err), code);
    if (!strstr(err.msg, message))
        fail_msg("\"%s\" is not in \"%s\"", message, err.msg);
}

static void assert_text(const rsd_value *v, const char *want)
{
    char text[512];

    assert_int_equal(rsd_value_text(v, text, sizeof(text)), strlen(want));
    assert_string_equal(text, want);
}

static void assert_json(const rsd_value *v, const char *want)
{
    char text[512];

    assert_int_equal(rsd_value_json(v, text, sizeof(text)), strlen(want));
    assert_string_equal(text, want);
}

/* ---- Made by hand ------------------------------------------------------------------------------
 */

static const rsd_value *of_int(int64_t x)
{
    const rsd_value *v = NULL;

    assert_int_equal(rsd_value_create_int(owner, x, &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *of_float(double x)
{
    const rsd_value *v = NULL;

    assert_int_equal(rsd_value_create_float(owner, x, &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *of_bytes(rsd_value_type type, const char *bytes, size_t len)
{
    const rsd_value *v = NULL;

    assert_int_equal(rsd_value_create_bytes(owner, type, bytes, len, &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *of_list(rsd_value_type type, size_t n, const rsd_value *const *item)
{
    const rsd_value *v = NULL;

    assert_int_equal(rsd_value_create_list(owner, type, n, item, &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *of_str(const char *text)
{
    return of_bytes(RSD_VALUE_STR, text, strlen(text));
}

static void values_give_back_what_they_were_made_of(void **state)
{
    const rsd_value *v = NULL;
    size_t           len = 0;

    (void)state;
    assert_int_equal(rsd_value_int(of_int(INT64_MIN)), INT64_MIN);
    assert_int_equal(rsd_value_int(of_int(7)), 7);
    assert_true(rsd_value_float(of_float(0.25)) == 0.25);
    assert_true(rsd_value_float(of_int(3)) == 3.0);
    assert_int_equal(rsd_value_create_bool(owner, true, &v, NULL), RSD_OK);
    assert_true(rsd_value_bool(v));
    assert_int_equal(rsd_value_type_of(v), RSD_VALUE_BOOL);
    assert_int_equal(rsd_value_create_none(owner, &v, NULL), RSD_OK);
    assert_int_equal(rsd_value_type_of(v), RSD_VALUE_NONE);
    assert_int_equal(rsd_value_create_dtype(owner, RSD_BF16, &v, NULL), RSD_OK);
    assert_int_equal(rsd_value_dtype(v), RSD_BF16);
    assert_memory_equal(rsd_value_bytes(of_bytes(RSD_VALUE_BYTES, "a\0b", 3), &len), "a\0b", 4);
    assert_int_equal(len, 3);
}

static void reading_another_kind_gives_nothing(void **state)
{
    const rsd_value *v = of_int(5);

    (void)state;
    assert_false(rsd_value_bool(v));
    assert_null(rsd_value_bytes(v, NULL));
    assert_null(rsd_value_item(v, 0));
    assert_null(rsd_value_key(v, 0));
    assert_null(rsd_value_get(v, "x"));
    assert_null(rsd_value_tensor_of(v));
    assert_int_equal(rsd_value_count(v), 0);
    assert_int_equal(rsd_value_dtype(v), 0);
    assert_int_equal(rsd_value_int(of_str("5")), 0);
    assert_int_equal(rsd_value_type_of(NULL), 0);
}

static void dict_gives_the_last_value_of_a_key(void **state)
{
    const rsd_value *item[] = { of_str("a"), of_int(1),   of_str("b"),
                                of_int(2),   of_str("a"), of_int(3) };
    const rsd_value *v = of_list(RSD_VALUE_DICT, 3, item);

    (void)state;
    assert_int_equal(rsd_value_count(v), 3);
    assert_int_equal(rsd_value_int(rsd_value_get(v, "a")), 3);
    assert_null(rsd_value_get(v, "c"));
    assert_string_equal(rsd_value_bytes(rsd_value_key(v, 1), NULL), "b");
    assert_int_equal(rsd_value_int(rsd_value_item(v, 1)), 2);
    assert_null(rsd_value_item(v, 3));
}

static void tensor_gives_back_its_place(void **state)
{
    rsd_value_tensor tensor = { .dtype = RSD_F16,
                                .ndim = 1,
                                .shape = { 4 },
                                .stride = { 1 },
                                .storage_bytes = 8,
                                .storage = "7" };
    const rsd_value *v = NULL;

    (void)state;
    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &v, NULL), RSD_OK);
    assert_string_equal(rsd_value_tensor_of(v)->storage, "7");
    assert_int_equal(rsd_value_tensor_of(v)->shape[0], 4);
    assert_text(v, "tensor(dtype=float16, shape=[4])");
    assert_json(v, "{\"$tensor\": {\"dtype\": \"float16\", \"shape\": [4]}}");
}

static void senseless_arguments_are_refused(void **state)
{
    rsd_value_tensor tensor = { .dtype = RSD_F16, .ndim = 9 };
    const rsd_value *v = NULL, *null = NULL;

    (void)state;
    assert_int_equal(rsd_value_create_int(NULL, 1, &v, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_value_create_int(owner, 1, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &v, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_value_create_dtype(owner, (rsd_dtype)0, &v, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_value_create_bytes(owner, RSD_VALUE_INT, "", 0, &v, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_STR, 0, NULL, &v, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_LIST, 1, &null, &v, NULL),
                     RSD_E_INVALID);
    assert_null(v);
}

static void values_nest_up_to_the_limit(void **state)
{
    const rsd_value *v = NULL;
    char             text[2 * RSD_VALUE_MAX_DEPTH + 1];

    (void)state;
    v = of_int(1);
    for (int i = 0; i < RSD_VALUE_MAX_DEPTH; i++)
        v = of_list(RSD_VALUE_LIST, 1, &v);
    assert_int_equal(rsd_value_text(v, text, sizeof(text)), 2 * RSD_VALUE_MAX_DEPTH + 1);
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_LIST, 1, &v, &v, NULL),
                     RSD_E_UNSUPPORTED);
}

/* ---- Printed
 * --------------------------------------------------------------------------------------- */

static void containers_are_printed_as_in_python(void **state)
{
    const rsd_value *item[] = { of_int(1), of_str("x") };

    (void)state;
    assert_text(of_list(RSD_VALUE_LIST, 2, item), "[1, 'x']");
    assert_text(of_list(RSD_VALUE_TUPLE, 2, item), "(1, 'x')");
    assert_text(of_list(RSD_VALUE_TUPLE, 1, item), "(1,)");
    assert_text(of_list(RSD_VALUE_SET, 2, item), "{1, 'x'}");
    assert_text(of_list(RSD_VALUE_SET, 0, NULL), "set()");
    assert_text(of_list(RSD_VALUE_DICT, 1, item), "{1: 'x'}");
    assert_text(of_list(RSD_VALUE_DICT, 0, NULL), "{}");
    assert_text(of_list(RSD_VALUE_TUPLE, 0, NULL), "()");
}

static void what_json_lacks_is_an_object_with_one_key(void **state)
{
    const rsd_value *item[] = { of_int(1), of_str("x"), of_str("k"), of_int(2) };

    (void)state;
    assert_json(of_list(RSD_VALUE_TUPLE, 2, item), "[1, \"x\"]");
    assert_json(of_list(RSD_VALUE_SET, 2, item), "{\"$set\": [1, \"x\"]}");
    assert_json(of_list(RSD_VALUE_DICT, 2, item), "{\"$dict\": [[1, \"x\"], [\"k\", 2]]}");
    assert_json(of_list(RSD_VALUE_DICT, 1, item + 2), "{\"k\": 2}");
    assert_json(of_list(RSD_VALUE_DICT, 0, NULL), "{}");
    assert_json(of_bytes(RSD_VALUE_BYTES, "\x00\xff", 2), "{\"$bytes\": \"00ff\"}");
    assert_json(of_bytes(RSD_VALUE_OPAQUE, "m.C", 3), "{\"$opaque\": \"m.C\"}");
    assert_json(of_float(NAN), "{\"$float\": \"nan\"}");
    assert_json(of_float(-INFINITY), "{\"$float\": \"-inf\"}");
}

static void floats_have_as_few_digits_as_python_gives_them(void **state)
{
    (void)state;
    assert_text(of_float(0.1), "0.1");
    assert_text(of_float(1.0), "1.0");
    assert_text(of_float(-0.0), "-0.0");
    assert_text(of_float(1e16), "1e+16");
    assert_text(of_float(1.0 / 3), "0.3333333333333333");
    assert_text(of_float(5e-324), "5e-324");
    assert_text(of_float(INFINITY), "inf");
}

static void text_is_quoted(void **state)
{
    (void)state;
    assert_text(of_str("it's"), "\"it's\"");
    assert_text(of_str("a'\"\n\x01\\"), "'a\\'\"\\n\\x01\\\\'");
    assert_text(of_str("\xc3\xa9"), "'\xc3\xa9'");
    assert_text(of_str("\xed\xa0\x80"), "'\\ud800'");
    assert_text(of_bytes(RSD_VALUE_BYTES, "a\xff\t", 3), "b'a\\xff\\t'");
    assert_json(of_str("\"\x01\xed\xa0\x80"), "\"\\\"\\u0001\\ud800\"");
}

static void text_that_does_not_fit_is_cut_but_counted(void **state)
{
    char text[4];

    (void)state;
    assert_int_equal(rsd_value_text(of_str("abcdef"), text, sizeof(text)), 8);
    assert_string_equal(text, "'ab");
    assert_int_equal(rsd_value_text(of_str("abcdef"), NULL, 0), 8);
}

/* ---- Decoded
 * --------------------------------------------------------------------------------------- */

static void plain_object_is_decoded(void **state)
{
    const rsd_value *v = decode(PICKLE(plain_pickle));

    (void)state;
    assert_text(v, "{'step': 100, 'lr': [0.1, 1e-05], 'name': \"a'b\", 'none': None, "
                   "'flags': (True, False), 3: {'x': 1180591620717411303424}}");
    assert_int_equal(rsd_value_int(rsd_value_get(v, "step")), 100);
}

static void protocol_2_forms_are_decoded(void **state)
{
    (void)state;
    assert_text(decode(PICKLE(protocol_2_pickle)),
                "[b'\\x00\\xff', {7}, b'xy', b'', {'k': 1}, 18446744073709551616]");
}

static void objects_of_torch_are_decoded(void **state)
{
    (void)state;
    assert_text(decode(PICKLE(torch_pickle)),
                "[(2, 3), torch.bfloat16, device('cuda:1'), device('cpu')]");
}

static void big_integers_are_decimal(void **state)
{
    (void)state;
    assert_text(decode(PICKLE("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\xff.")),
                "-18446744073709551616");
    assert_text(decode(PICKLE("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff.")),
                "-9223372036854775809");
    assert_text(decode(PICKLE("\x8a\x09\x00\xca\x9a\x3b\x00\x00\x00\x00\x00.")), "1000000000");
    assert_text(decode(PICKLE("\x8a\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80.")),
                "-39614081257132168796771975168");
}

static void foreign_object_is_opaque_and_reported(void **state)
{
    rsi_source       source = rsi_memory_source(PICKLE(foreign_pickle), "test");
    rsi_value_pickle pickle = { 0 };

    (void)state;
    assert_int_equal(rsi_value_read(&source, owner, &pickle, NULL), RSD_OK);
    assert_text(pickle.root, "[1, datetime.date(b'\\x07\\xe4\\x01\\x01')]");
    assert_string_equal(pickle.unlisted, "datetime.date");
    assert_int_equal(pickle.unlisted_at, 45);
}

/* An object of m.C with a state, and its parts. */
#define OBJECT(state) "cm\nC\n)\x81" state "b"
#define TEXT1(a)      "X\x01\x00\x00\x00" a

static void an_object_is_shown_with_its_fields(void **state)
{
    static const char plain[] = "\x80\x02" OBJECT("}(" TEXT1("a") "K\x01" TEXT1("-") "N"
                                                                                     "u") ".";
    static const char slots[] = "\x80\x02" OBJECT("N}(" TEXT1("a") "K\x01"
                                                                   "u\x86") ".";
    static const char other[] = "\x80\x02" OBJECT("}(K\x01K\x02u") ".";

    (void)state;
    assert_text(decode(PICKLE(plain)), "m.C(a=1, '-'=None)");
    assert_json(decode(PICKLE(plain)),
                "{\"$opaque\": \"m.C\", \"fields\": {\"a\": 1, \"-\": null}}");
    assert_text(decode(PICKLE(slots)), "m.C(a=1)");
    assert_text(decode(PICKLE(other)), "<m.C>");
}

static void a_call_is_shown_with_its_arguments(void **state)
{
    static const char call[] = "\x80\x02"
                               "cm\nC\nK\x01N\x86R.";
    static const char both[] = "\x80\x02"
                               "cm\nC\nK\x01\x85R}" TEXT1("a") "Nsb.";

    (void)state;
    assert_text(decode(PICKLE(call)), "m.C(1, None)");
    assert_json(decode(PICKLE(call)), "{\"$opaque\": \"m.C\", \"args\": [1, null]}");
    assert_text(decode(PICKLE(both)), "<m.C>");
}

#define NUMPY(code)                                                                                \
    "cnumpy\ndtype\nX\x02\x00\x00\x00" code                                                        \
    "\x89\x88\x87R(K\x03" TEXT1("<") "NNNJ\xff\xff\xff\xff"                                        \
                                     "J\xff\xff\xff\xff"                                           \
                                     "K\x00tb"
#define LATIN1(len, bytes)                                                                         \
    "c_codecs\nencode\nX" len "\x00\x00\x00" bytes "X\x06\x00\x00\x00latin1\x86R"

static void numpy_is_shown_by_its_elements(void **state)
{
    static const char scalar[] =
        "\x80\x02"
        "cnumpy.core.multiarray\nscalar\n" NUMPY("i2") LATIN1("\x03", "\xc3\xbe\x7f") "\x86R.";
    static const char array[] =
        "\x80\x02"
        "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" TEXT1(
            "b") "\x87R(K\x01K\x02K\x01\x86" NUMPY("u1") "\x89" LATIN1("\x02", "\x05\x06") "tb.";
    static const char short_of_one[] =
        "\x80\x02"
        "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" TEXT1(
            "b") "\x87R(K\x01K\x02K\x02\x86" NUMPY("u1") "\x89" LATIN1("\x02", "\x05\x06") "tb.";

    (void)state;
    assert_text(decode(PICKLE(scalar)), "numpy.core.multiarray.scalar(32766, 'int16')");
    assert_text(decode(PICKLE(array)), "numpy.core.multiarray._reconstruct([[5], [6]], 'uint8')");
    assert_text(decode(PICKLE(short_of_one)), "<numpy.core.multiarray._reconstruct>");
}

/* m.C(m.C(..(1))) */
static void objects_inside_objects_are_shown_to_a_depth(void **state)
{
    char pickle[256] = "\x80\x02", want[256] = "";

    (void)state;
    for (int i = 0; i < 9; i++) {
        strcat(pickle, "cm\nC\n");
        strcat(want, i < 8 ? "m.C(" : "<m.C>");
    }
    strcat(pickle, "K\x01");
    for (int i = 0; i < 9; i++)
        strcat(pickle, "\x85R");
    for (int i = 0; i < 8; i++)
        strcat(want, ")");
    strcat(pickle, ".");
    assert_text(decode(pickle, strlen(pickle)), want);
}

/* Each holds the last one 40 times. */
static void objects_that_multiply_are_shown_within_a_budget(void **state)
{
    rsi_bytes        pickle = { 0 };
    const rsd_value *v;

    (void)state;
    assert_true(rsi_bytes_add(&pickle, "\x80\x02Nq\x00\x30", 6));
    for (int level = 0; level < 7; level++) {
        assert_true(rsi_bytes_add(&pickle, "cm\nC\n(", 6));
        for (int i = 0; i < 40; i++)
            assert_true(rsi_bytes_add(&pickle, "h\x00", 2));
        assert_true(rsi_bytes_add(&pickle, "tRq\x00\x30", 5));
    }
    assert_true(rsi_bytes_add(&pickle, "h\x00.", 3));
    v = decode((const char *)pickle.at, pickle.len);
    assert_in_range(rsd_value_text(v, NULL, 0), 1000, 16 << 20);
    rsi_free(pickle.at);
}

static void strided_view_is_decoded(void **state)
{
    const rsd_value_tensor *t = rsd_value_tensor_of(decode(PICKLE(transposed_pickle)));

    (void)state;
    assert_non_null(t);
    assert_int_equal(t->dtype, RSD_F32);
    assert_int_equal(t->ndim, 2);
    assert_int_equal(t->shape[0], 4);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->stride[0], 1);
    assert_int_equal(t->stride[1], 4);
    assert_int_equal(t->storage_bytes, 48);
    assert_string_equal(t->storage, "0");
    assert_string_equal(t->location, "cpu");
    assert_false(t->conj || t->neg || t->requires_grad);
}

static void tensor_of_an_untyped_storage_is_decoded(void **state)
{
    const rsd_value_tensor *t = rsd_value_tensor_of(decode(PICKLE(uint16_pickle)));

    (void)state;
    assert_non_null(t);
    assert_int_equal(t->dtype, RSD_U16);
    assert_int_equal(t->storage_bytes, 12);
}

static void parameter_is_a_tensor_that_requires_grad(void **state)
{
    const rsd_value        *v = rsd_value_get(decode(PICKLE(parameter_pickle)), "w");
    const rsd_value_tensor *t = rsd_value_tensor_of(v);

    (void)state;
    assert_non_null(t);
    assert_true(t->requires_grad);
    assert_int_equal(t->shape[0], 2);
}

static void conjugate_is_flagged(void **state)
{
    const rsd_value_tensor *t = rsd_value_tensor_of(decode(PICKLE(conjugate_pickle)));

    (void)state;
    assert_non_null(t);
    assert_int_equal(t->dtype, RSD_C64);
    assert_true(t->conj);
    assert_false(t->neg);
}

/* A float32 tensor on a storage of `numel` with the given size and stride. */
#define TENSOR(numel, offset, size, stride)                                                        \
    "ctorch._utils\n_rebuild_tensor_v2\n((\x8c\x07storagectorch\nFloatStorage\n\x8c\x01"           \
    "0"                                                                                            \
    "\x8c\x03"                                                                                     \
    "cpu" numel "tQ" offset size stride "\x89NtR."

static void view_inside_its_storage_is_decoded(void **state)
{
    (void)state;
    assert_text(decode(PICKLE(TENSOR("K\x0c", "K\x02", "K\x05\x85", "K\x02\x85"))),
                "tensor(dtype=float32, shape=[5])");
    assert_text(decode(PICKLE(TENSOR("K\x00", "K\x00", "K\x00\x85", "K\x01\x85"))),
                "tensor(dtype=float32, shape=[0])");
    assert_text(decode(PICKLE(TENSOR("K\x01", "K\x00", ")", ")"))),
                "tensor(dtype=float32, shape=[])");
}

static void view_beyond_its_storage_is_refused(void **state)
{
    (void)state;
    refuse(PICKLE(TENSOR("K\x0a", "K\x02", "K\x05\x85", "K\x02\x85")), RSD_E_FORMAT,
           "beyond the 40 bytes of its storage \"0\"");
    refuse(PICKLE(TENSOR("K\x0a", "J\xff\xff\xff\xff", "K\x05\x85", "K\x01\x85")), RSD_E_FORMAT,
           "beyond");
    refuse(PICKLE(TENSOR("K\x0a", "K\x00", "K\x05\x85", "J\xff\xff\xff\xff\x85")), RSD_E_FORMAT,
           "beyond");
    refuse(
        PICKLE(TENSOR(
            "K\x0a", "K\x00",
            "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x86",
            "K\x02K\x02\x86")),
        RSD_E_FORMAT, "beyond");
    refuse(PICKLE(TENSOR("K\x00", "K\x00", ")", ")")), RSD_E_FORMAT, "beyond");
}

static void tensor_that_can_not_be_told_is_opaque(void **state)
{
    (void)state;
    /* negative numel; strides that are not as many as sizes; nine dimensions */
    assert_text(decode(PICKLE(TENSOR("J\xff\xff\xff\xff", "K\x00", "K\x01\x85", "K\x01\x85"))),
                "<torch._utils._rebuild_tensor_v2>");
    assert_text(decode(PICKLE(TENSOR("K\x01", "K\x00", "K\x01\x85", ")"))),
                "<torch._utils._rebuild_tensor_v2>");
    assert_text(decode(PICKLE(TENSOR("K\x01", "K\x00",
                                     "(K\x01"
                                     "222222222t",
                                     "(K\x01"
                                     "222222222t"))),
                "<torch._utils._rebuild_tensor_v2>");
}

static void list_that_holds_itself_is_refused(void **state)
{
    (void)state;
    refuse(PICKLE("]\x94h\x00"
                  "a."),
           RSD_E_FORMAT, "deeper than 512");
}

/* Each list holds the one before twice: 2^60 values if they were all made. */
static void lists_that_double_are_refused_within_their_memory(void **state)
{
    char bytes[640] = "]\x94N"
                      "a0",
         *at = bytes + 5;

    (void)state;
    for (int i = 0; i < 60; i++, at += 9) {
        memcpy(at, "]\x94(h\0h\0e0", 9);
        at[4] = at[6] = (char)i;
    }
    memcpy(at - 1, ".", 2);
    rsi_mem_fail_at(0, 0);
    refuse(bytes, (size_t)(at - bytes), RSD_E_FORMAT, "keeps referring");
    assert_in_range(rsi_mem_stats_get().peak, 1, (2 << 20));
}

static void every_allocation_may_fail(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        rsd_err rc = RSD_E_NOMEM;

        for (uint64_t n = 1; rc; n++) {
            rsi_source       source = rsi_memory_source(PICKLE(parameter_pickle), "test");
            rsd_values      *values = NULL;
            rsi_value_pickle pickle = { 0 };

            rsi_mem_fail_at(n, for_ever);
            rc = rsd_values_create(&values, NULL);
            if (!rc)
                rc = rsi_value_read(&source, values, &pickle, NULL);
            rsi_mem_fail_at(0, 0);
            rsd_values_free(values);
            assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
            assert_in_range(n, 1, 100);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_give_back_what_they_were_made_of),
        cmocka_unit_test(reading_another_kind_gives_nothing),
        cmocka_unit_test(dict_gives_the_last_value_of_a_key),
        cmocka_unit_test(tensor_gives_back_its_place),
        cmocka_unit_test(senseless_arguments_are_refused),
        cmocka_unit_test(values_nest_up_to_the_limit),
        cmocka_unit_test(containers_are_printed_as_in_python),
        cmocka_unit_test(what_json_lacks_is_an_object_with_one_key),
        cmocka_unit_test(floats_have_as_few_digits_as_python_gives_them),
        cmocka_unit_test(text_is_quoted),
        cmocka_unit_test(text_that_does_not_fit_is_cut_but_counted),
        cmocka_unit_test(plain_object_is_decoded),
        cmocka_unit_test(protocol_2_forms_are_decoded),
        cmocka_unit_test(objects_of_torch_are_decoded),
        cmocka_unit_test(big_integers_are_decimal),
        cmocka_unit_test(foreign_object_is_opaque_and_reported),
        cmocka_unit_test(an_object_is_shown_with_its_fields),
        cmocka_unit_test(a_call_is_shown_with_its_arguments),
        cmocka_unit_test(numpy_is_shown_by_its_elements),
        cmocka_unit_test(objects_inside_objects_are_shown_to_a_depth),
        cmocka_unit_test(objects_that_multiply_are_shown_within_a_budget),
        cmocka_unit_test(strided_view_is_decoded),
        cmocka_unit_test(tensor_of_an_untyped_storage_is_decoded),
        cmocka_unit_test(parameter_is_a_tensor_that_requires_grad),
        cmocka_unit_test(conjugate_is_flagged),
        cmocka_unit_test(view_inside_its_storage_is_decoded),
        cmocka_unit_test(view_beyond_its_storage_is_refused),
        cmocka_unit_test(tensor_that_can_not_be_told_is_opaque),
        cmocka_unit_test(list_that_holds_itself_is_refused),
        cmocka_unit_test(lists_that_double_are_refused_within_their_memory),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

# SPDX-License-Identifier: Apache-2.0
"""Broken torch.save files: first the zip archive around the pickle, then the pickle. Each case is
a path and the content; see make_bad.py."""

import struct

from bad_build import *

GOOD = pkl(dct((txt("w"), tensor())))


def good(**style):
    return Zip(records(GOOD), **style)


def zip_cut_cases():
    z, raw = good(), good().out()
    at = z.at
    yield "cut_in_first_header", raw[:20]
    yield "cut_in_pickle", raw[: at["data", "data.pkl"] + 10]
    yield "cut_in_data", raw[: at["data", "data/0"] + 4]
    yield "cut_in_descriptor", raw[: at["behind", "data/0"] + 4]
    yield "cut_before_directory", raw[: at["dir"]]
    yield "cut_in_directory", raw[: at["dir"] + 60]
    yield "cut_before_end64", raw[: at["end64"]]
    yield "cut_before_locator", raw[: at["locator"]]
    yield "cut_before_end", raw[: at["end"]]
    yield "cut_in_end", raw[:-1]
    yield "trailing_byte", raw + b"\0"
    yield "trailing_100", raw + b"x" * 100
    yield "trailing_2000", raw + bytes(2000)
    yield "two_archives", raw + raw
    yield "end_twice", raw + raw[at["end"] :]
    yield "prefix", b"PK\3\4" + raw
    yield "prefix_adjusted", good(prefix=b"PK\3\4 and more").out()
    yield "comment", good().put("end", 20, "H", 5).out() + b"hello"
    yield "comment_cut", good().put("end", 20, "H", 5).out() + b"hel"
    inner = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0, 0, 0, 0, 0)
    yield "second_end_in_comment", good().put("end", 20, "H", 22).out() + inner
    yield "gap_before_directory", raw[: at["dir"]] + bytes(8) + raw[at["dir"] :]
    yield "gap_before_end", raw[: at["end"]] + bytes(8) + raw[at["end"] :]


def zip_end_cases():
    z = good()
    n = len(records(GOOD))
    yield "end_other_disk", good().put("end", 4, "H", 1).out()
    yield "end_count", good().put("end", 10, "H", n + 1).out()
    yield "end_count_both", good().put("end", 8, "HH", n + 1, n + 1).out()
    yield "end_directory_size", good().put("end", 12, "I", 1).out()
    yield "end_directory_offset", good().put("end", 16, "I", 1).out()
    yield "end32_count_more", good(plain_end=True).put("end", 8, "HH", 60000, 60000).out()
    yield "end32_count_less", good(plain_end=True).put("end", 8, "HH", n - 1, n - 1).out()
    yield "end32_count_0", good(plain_end=True).put("end", 8, "HH", 0, 0).out()
    yield "end32_offset_past", good(plain_end=True).put("end", 16, "I", 0x7FFFFFFF).out()
    yield "end32_size_past", good(plain_end=True).put("end", 12, "I", 0x7FFFFFFF).out()
    yield "end32_asks_for_zip64", good(plain_end=True).put("end", 16, "I", 0xFFFFFFFF).out()
    yield "end64_count", good().put("end64", 24, "QQ", n + 1, n + 1).out()
    yield "end64_count_huge", good().put("end64", 24, "QQ", 2**62, 2**62).put("end", 8, "HH", 0xFFFF, 0xFFFF).out()
    yield "end64_count_differs", good().put("end64", 24, "Q", n + 1).out()
    wide = good().put("end", 12, "II", 0xFFFFFFFF, 0xFFFFFFFF)
    yield "end64_offset_2_63", wide.put("end64", 48, "Q", 2**63).out()
    wide = good().put("end", 12, "II", 0xFFFFFFFF, 0xFFFFFFFF)
    yield "end64_sum_wraps", wide.put("end64", 40, "QQ", 2**63, 2**63 + z.at["end64"]).out()
    yield "end64_size_field", good().put("end64", 4, "Q", 2**40).out()
    yield "end64_signature", good().put("end64", 0, "I", 0).out()
    yield "end64_disk", good().put("end64", 16, "I", 1).out()
    yield "locator_offset", good().put("locator", 8, "Q", 0).out()
    yield "locator_to_itself", good().put("locator", 8, "Q", z.at["locator"]).out()
    yield "locator_past_end", good().put("locator", 8, "Q", 2**64 - 1).out()
    yield "locator_disks", good().put("locator", 16, "I", 2).out()
    yield "locator_signature", good().put("locator", 0, "I", 0).out()


def zip_record_cases():
    z = good()
    data, pickle = ("central", "data/0"), ("central", "data.pkl")
    yield "central_signature", good().put(data, 0, "I", 0).out()
    yield "central_method_deflate", good().put(data, 10, "H", 8).out()
    yield "local_method_deflate", good().put(("local", "data/0"), 8, "H", 8).out()
    yield "central_encrypted", good().put(data, 8, "H", 0x0809).out()
    yield "local_encrypted", good().put(("local", "data/0"), 6, "H", 0x0809).out()
    yield "strong_encryption", good().put(data, 8, "H", 0x0848).out()
    yield "unknown_flag", good().put(data, 8, "H", 0x8808).out()
    yield "flags_differ", good().put(data, 8, "H", 0x0008).out()
    yield "central_size_larger", good().put(data, 20, "II", 12, 12).out()
    yield "central_size_smaller", good().put(data, 20, "II", 4, 4).out()
    yield "central_sizes_differ", good().put(data, 20, "II", 8, 4).out()
    yield "central_size_huge", good().put(data, 20, "II", 0xFFFFFFF0, 0xFFFFFFF0).out()
    yield "central_size_asks_for_zip64", good().put(data, 20, "II", 0xFFFFFFFF, 0xFFFFFFFF).out()
    yield "central_crc", good().put(data, 16, "I", 1).out()
    yield "local_size", good().put(("local", "data/0"), 18, "II", 4, 4).out()
    yield "local_crc", good().put(("local", "data/0"), 14, "I", 1).out()
    yield "local_signature", good().put(("local", "data/0"), 0, "I", 0).out()
    yield "local_name", good().rename("data/0", "data/1", central=False).out()
    yield "central_name", good().rename("data/0", "data/1", local=False).out()
    yield "local_name_length", good().put(("local", "data/0"), 26, "H", 13).out()
    yield "local_extra_length", good().put(("local", "data/0"), 28, "H", 9).out()
    yield "descriptor_signature", good().put(("behind", "data/0"), 0, "I", 0).out()
    yield "descriptor_size", good().put(("behind", "data/0"), 8, "II", 4, 4).out()
    yield "descriptor_crc", good().put(("behind", "data/0"), 4, "I", 1).out()
    yield "offset_to_another", good().put(data, 42, "I", z.at["local", "version"]).out()
    yield "offset_into_data", good().put(data, 42, "I", z.at["data", "data.pkl"]).out()
    yield "offset_to_directory", good().put(data, 42, "I", z.at["dir"]).out()
    yield "offset_past_end", good().put(data, 42, "I", 0x7FFFFFFF).out()
    yield "offset_asks_for_zip64", good().put(data, 42, "I", 0xFFFFFFFF).out()
    yield "first_not_at_0", good().put(pickle, 42, "I", z.at["local", "byteorder"]).out()
    yield "entry_comment", good().put(data, 32, "H", 3).out()
    yield "entry_disk", good().put(data, 34, "H", 1).out()
    yield "entry_name_length", good().put(data, 28, "H", 0xFFFF).out()
    yield "entry_extra_length", good().put(data, 30, "H", 3).out()
    yield "record_twice", Zip(records(GOOD, more=[("data/0", struct.pack("<2f", 9, 9))])).out()
    yield "pickle_crc", flip(good(), "data.pkl", 20)
    yield "version_crc", flip(good(), "version", 0)
    yield "data_crc", flip(good(), "data/0", 3)
    # The first element is not the first of the storage any more: nothing but the CRC can tell.
    many = [(txt("w%02d" % i), tensor(numel=4)) for i in range(40)]
    large = Zip(records(pkl(dct(*many)), FLOATS * 2))
    offset = large.bytes.index(b"tQK\0", large.bytes.index(b"w20")) + 3
    yield "large_pickle_crc", flip(large, "data.pkl", offset - large.at["data", "data.pkl"])


def flip(z, name, byte):
    z.bytes[z.at["data", name] + byte] ^= 1
    return z.out()


def zip_content_cases():
    yield "no_version", Zip(records(GOOD, version=None)).out()
    yield "version_0", Zip(records(GOOD, version=b"0\n")).out()
    yield "version_99", Zip(records(GOOD, version=b"99\n")).out()
    yield "version_text", Zip(records(GOOD, version=b"three")).out()
    yield "version_empty", Zip(records(GOOD, version=b"")).out()
    yield "version_long", Zip(records(GOOD, version=b"3" * 40)).out()
    yield "byteorder_weird", Zip(records(GOOD, byteorder=b"middle")).out()
    yield "byteorder_empty", Zip(records(GOOD, byteorder=b"")).out()
    yield "byteorder_nul", Zip(records(GOOD, byteorder=b"little\0x")).out()
    yield "no_pickle", Zip(records(GOOD)[1:]).out()
    yield "no_storage", Zip(records(GOOD, data=None)).out()
    yield "storage_short", Zip(records(GOOD, data=FLOATS[:4])).out()
    yield "storage_long", Zip(records(GOOD, data=FLOATS * 2)).out()
    yield "name_dot_dot", good().rename("data/0", "../a/0").out()
    yield "name_slash_slash", good().rename("data/0", "data//").out()
    yield "name_nul", good().rename("data/0", b"data\0" + b"0").out()
    yield "name_backslash", good().rename("data/0", "data\\0").out()
    yield "name_not_utf8", good().rename("data/0", b"data/\xff").out()
    yield "name_absolute", Zip(records(GOOD), folder="").out()
    z = good()
    for part, skip in (("local", 30), ("central", 46)):
        z.bytes[z.at[part, "data/0"] + skip] = ord("b")
    yield "name_in_other_folder", z.out()
    flat = Zip(records(GOOD))
    flat.bytes = flat.bytes.replace(b"archive/", b"archive_")
    yield "name_without_folder", flat.out()


# ---- pickles ----


def pt(body, data=FLOATS, proto=2, raw=None):
    """A file whose pickle is in order as far as its archive goes."""
    return Zip(records(pkl(body, proto) if raw is None else raw, data)).out()


def refused_opcode_cases():
    for name, body in {
        "inst": b"(ios\nsystem\n", "obj": b"(" + glob("os", "system") + txt("id") + b"o",
        "persid": b"Pstorage\n", "ext1": b"\x82\x01", "ext2": b"\x83\x01\0", "ext4": b"\x84\x01\0\0\0",
        "next_buffer": b"\x97", "readonly_buffer": NONE + b"\x98", "int": b"I1\n", "long": b"L1L\n",
        "float": b"F1.0\n", "string": b"S'a'\n", "unicode": b"Va\n", "put": NONE + b"p0\n", "get": NONE + b"q\0g0\n",
    }.items():
        yield "opcode_" + name, pt(body)
    yield "opcode_none", pt(b"\xff")
    yield "opcode_nul", pt(b"\0")
    yield "protocol_6", pt(NONE, proto=6)
    yield "protocol_255", pt(NONE, proto=255)
    yield "no_protocol", pt(None, raw=b"\xffN.")


def stream_cases():
    yield "empty", Zip([("data.pkl", b""), ("version", b"3\n")]).out()
    yield "only_stop", pt(b"")
    yield "no_stop", pt(None, raw=b"\x80\x02N")
    yield "only_protocol", pt(None, raw=b"\x80\x02")
    yield "bytes_behind_stop", pt(None, raw=pkl(NONE) + b"junk")
    yield "two_pickles", pt(None, raw=pkl(NONE) + pkl(NONE))
    yield "two_values", pt(NONE + NONE)
    yield "mark_left", pt(b"(" + NONE)
    yield "stop_on_mark", pt(b"(")
    yield "memo_2_30", pt(NONE + b"r" + struct.pack("<I", 1 << 30))
    yield "memo_2_31", pt(NONE + b"r" + struct.pack("<I", (1 << 31) - 1))
    yield "memo_2_32", pt(NONE + b"r" + struct.pack("<I", 0xFFFFFFFF))
    yield "get_unset", pt(b"h\x05")
    yield "get_unset_long", pt(b"j\xff\xff\xff\xff")
    yield "get_before_put", pt(b"h\0" + NONE + b"q\0")
    yield "memoize_nothing", pt(b"\x94")
    yield "frame_2_63", pt(b"\x95" + struct.pack("<Q", 1 << 63) + NONE, proto=4)
    yield "frame_past_end", pt(b"\x95" + struct.pack("<Q", 100) + NONE, proto=4)
    for name, code in {"pop": b"0", "dup": b"2", "append": b"a", "appends": b"e", "setitem": b"s", "setitems": b"u",
                       "tuple": b"t", "tuple1": b"\x85", "tuple2": NONE + b"\x86", "tuple3": NONE + NONE + b"\x87",
                       "list": b"l", "dict": b"d", "reduce": b"R", "newobj": b"\x81", "newobj_ex": b"\x92", "build": b"b",
                       "stack_global": b"\x93", "binpersid": b"Q", "put": b"q\0", "pop_mark": b"1",
                       "additems": b"\x90", "frozenset": b"\x91"}.items():
        yield "underflow_" + name, pt(code, proto=4)
    yield "append_across_mark", pt(b"](" + b"a")
    yield "append_to_tuple", pt(b")" + NONE + b"a")
    yield "setitem_on_list", pt(b"]" + NONE + NONE + b"s")
    yield "setitems_odd", pt(b"}(" + NONE + b"u")
    yield "dict_odd", pt(b"(" + NONE + b"d")
    yield "additems_to_list", pt(b"](" + NONE + b"\x90", proto=4)
    yield "build_on_list", pt(b"]" + b"}" + b"b")
    yield "reduce_of_text", pt(txt("os.system") + tup(txt("id")) + b"R")
    yield "reduce_list_arguments", pt(glob("collections", "OrderedDict") + b"]R")
    yield "stack_global_numbers", pt(num(1) + num(2) + b"\x93", proto=4)


def size_cases():
    yield "text_past_end", pt(b"X" + struct.pack("<I", 1000) + b"abc")
    yield "text_2_32", pt(b"X\xff\xff\xff\xff")
    yield "text_2_63", pt(b"\x8d" + struct.pack("<Q", 1 << 63), proto=4)
    yield "text_2_64", pt(b"\x8d" + b"\xff" * 8, proto=4)
    yield "text_cut_length", pt(None, raw=b"\x80\x02X\1\0")
    yield "text_not_utf8", pt(dct((txt(b"\xff"), num(1))))
    yield "short_text_past_end", pt(b"\x8c\xffabc", proto=4)
    yield "bytes_past_end", pt(b"B" + struct.pack("<I", 1000) + b"abc")
    yield "bytes_2_63", pt(b"\x8e" + struct.pack("<Q", 1 << 63), proto=4)
    yield "bytearray_2_64", pt(b"\x96" + b"\xff" * 8, proto=5)
    yield "string_negative", pt(b"T" + struct.pack("<i", -1) + b"abc")
    yield "long_negative", pt(b"\x8b" + struct.pack("<i", -1))
    yield "long4_2_31", pt(b"\x8b" + struct.pack("<I", (1 << 31) - 1))
    yield "long4_257", pt(b"\x8b" + struct.pack("<I", 257) + bytes(257))
    yield "long1_past_end", pt(b"\x8a\xff\1")
    yield "float_past_end", pt(b"G\0\0")
    yield "global_no_newline", pt(None, raw=b"\x80\x02cos\nsystem")
    yield "global_empty", pt(b"c\n\n")
    yield "global_not_utf8", pt(b"c\xff\nx\n")
    yield "global_long", pt(b"c" + b"m" * 3000 + b"\nx\n")
    yield "nested_600", pt(b"]" * 600 + b"a" * 599)
    yield "nested_20000", pt(b"]" * 20000 + b"a" * 19999)
    yield "nested_tuples", pt(b")" + b"\x85" * 20000)
    yield "laughs", pt(laughs(40))
    yield "laughs_in_dicts", pt(laughs_in_dicts(40))
    yield "contains_itself", pt(b"]q\0h\0a")
    yield "dict_contains_itself", pt(b"}q\0" + txt("a") + b"h\0s")


def laughs(n):
    """Lists that hold the list before twice: 2^n values in 9 n bytes."""
    body = b"]q\0"
    for i in range(1, n):
        body += b"0](h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"eq" + bytes([i])
    return body


def laughs_in_dicts(n):
    body = dct((txt("w"), tensor())) + b"q\0"
    for i in range(1, n):
        before = b"h" + bytes([i - 1])
        body += b"0" + dct((txt("a"), before), (txt("b"), before)) + b"q" + bytes([i])
    return body


def code_cases():
    """Nothing is called, whatever the way to it; its name is told."""
    run = txt("echo pwned > pwned")
    for name, callee in {"os_system": ("os", "system"), "posix_system": ("posix", "system"),
                         "nt_system": ("nt", "system"), "eval": ("builtins", "eval"), "exec": ("__builtin__", "exec"),
                         "popen": ("subprocess", "Popen"), "check_output": ("subprocess", "check_output"),
                         "runpy": ("runpy", "_run_code"), "getattr": ("builtins", "getattr"),
                         "import": ("builtins", "__import__"), "torch_load": ("torch", "load"),
                         "dotted": ("collections", "OrderedDict.__init__"), "hub": ("torch.hub", "load")}.items():
        yield "calls_" + name, pt(dct((txt("w"), tensor()), (txt("x"), call(glob(*callee), run))))
    yield "calls_by_stack_global", pt(call(stack_glob("os", "system"), run), proto=4)
    yield "calls_by_newobj", pt(glob("os", "system") + tup(run) + b"\x81")
    yield "calls_by_newobj_ex", pt(glob("os", "system") + tup(run) + b"}\x92", proto=4)
    yield "calls_by_build", pt(call(glob("os", "system"), run) + b"}b")
    yield "calls_by_setitem", pt(call(glob("os", "_Environ")) + txt("PATH") + txt("x") + b"s")
    yield "calls_result", pt(call(call(glob("operator", "attrgetter"), txt("system")), glob("os", "path")))
    yield "calls_in_key", pt(dct((call(glob("os", "system"), run), num(1))))
    yield "calls_then_pops", pt(call(glob("os", "system"), run) + b"0" + NONE)
    yield "names_only", pt(glob("os", "system"))


def tensor_cases():
    def bad(name, data=FLOATS, **how):
        return "tensor_" + name, pt(dct((txt("w"), tensor(**how))), data)

    yield bad("outside_storage", size=(3,))
    yield bad("offset_outside", offset=1)
    yield bad("offset_negative", offset=-1)
    yield bad("offset_2_63", offset=2**63 - 1)
    yield bad("size_negative", size=(-2,))
    yield bad("size_2_62", size=(2**62,))
    yield bad("size_product", size=(2**32, 2**32), stride=(1, 1))
    yield bad("stride_outside", stride=(2,))
    yield bad("stride_negative", stride=(-1,), offset=1)
    yield bad("stride_2_62", stride=(2**62,))
    yield bad("stride_count", size=(1, 2))
    yield bad("dims_9", size=(1,) * 8 + (2,), stride=(1,) * 9)
    yield bad("numel_negative", numel=-2)
    yield bad("numel_2_62", numel=2**62)
    yield bad("numel_larger", numel=3)
    yield bad("numel_smaller", numel=1)
    yield bad("key_other", key="1")
    yield bad("key_dot_dot", key="../version")
    yield bad("key_long", key="0" * 300)
    yield bad("key_empty", key="")
    yield bad("storage_class", cls="QInt8Storage")
    yield bad("storage_evil", cls="EvilStorage")
    yield bad("persid_kind", kind="module")
    # Unusual, but torch makes them: they must be read right, however often an element is there.
    yield bad("expanded", size=(3, 2), stride=(0, 1))
    yield bad("expanded_inside", size=(2, 3), stride=(1, 0))
    yield bad("expanded_one", size=(1,), stride=(0,))
    yield bad("expanded_huge", size=(2**40,), stride=(0,))
    wide = struct.pack("<2399f", *range(2399))
    yield bad("overlapping_itself", wide, numel=2399, size=(1200, 1200), stride=(1, 1))
    v2 = glob("torch._utils", "_rebuild_tensor_v2")
    yield "tensor_no_arguments", pt(call(v2))
    yield "tensor_two_arguments", pt(call(v2, storage(), num(0)))
    yield "tensor_of_text", pt(v2 + b"(" + txt("x") + num(0) + ints(2) + ints(1) + FALSE + ORDERED_DICT + b"tR")
    yield "tensor_persid_number", pt(num(7) + b"Q")
    yield "names_of_40_mb", pt(many_names())
    shared = dct((txt("a"), dct((txt("b"), tensor()))), (txt("a.b"), tensor()))
    yield "names_collide", pt(shared)
    yield "key_with_nul", pt(dct((txt("a\0b"), tensor())))
    yield "tuple_key", pt(dct((ints(1, 2), tensor()), (txt("w"), tensor())))
    yield "int_and_text_key", pt(dct((num(1), tensor()), (txt("1"), tensor())))


def many_names():
    """A key of 4000 letters at each of 100 levels, and 100 tensors below: names of 40 MB."""
    body = txt("k" * 4000) + b"q\1" + b"0" + b"}h\1" * 100
    body += b"}(" + txt("t") + tensor() + b"q\2" + b"".join(txt("t%d" % i) + b"h\2" for i in range(99)) + b"u"
    return body + b"s" * 100


def cases():
    groups = zip_cut_cases(), zip_end_cases(), zip_record_cases(), zip_content_cases()
    for path, content in [c for group in groups for c in group]:
        yield "zip/" + path + ".pt", content
    groups = refused_opcode_cases(), stream_cases(), size_cases(), code_cases(), tensor_cases()
    for path, content in [c for group in groups for c in group]:
        yield "pickle/" + path + ".pt", content

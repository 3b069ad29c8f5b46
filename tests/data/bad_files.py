# SPDX-License-Identifier: Apache-2.0
"""Broken safetensors files, index files, and files that are no checkpoint at all. Each case is
a path and the content; see make_bad.py."""

import json
import struct

from bad_build import *

GOOD = {"a": st_tensor(0, 8)}
DATA = bytes(8)


def raw(text, data=DATA):
    """A header as text, where json.dumps would not write it."""
    return st(text.encode() if isinstance(text, str) else text, data)


def one(tensor_text, data=DATA):
    return raw('{"a":' + tensor_text + "}", data)


def with_field(dtype='"F32"', shape="[2]", offsets="[0,8]", more=""):
    return one('{"dtype":%s,"shape":%s,"data_offsets":%s%s}' % (dtype, shape, offsets, more))


def folder(content):
    """In a folder the end of the name, not the first bytes, tells what it is."""
    return {"model.safetensors": content}


def header_cases():
    full = st(GOOD, DATA)
    yield "empty_file", folder(b"")
    yield "seven_bytes", folder(full[:7])
    yield "length_zero", folder(st(b""))
    yield "length_zero_with_data", folder(st(b"", b"{}"))
    yield "length_past_end", st(GOOD, DATA, length=4096)
    yield "length_one_too_many", st(GOOD, b"", length=len(st(GOOD)) - 7)
    yield "length_above_limit", st(GOOD, DATA, length=100_000_001)
    yield "length_2_63", st(GOOD, DATA, length=2**63)
    yield "length_all_ones", st(GOOD, DATA, length=2**64 - 1)
    yield "length_one_too_few", st(GOOD, DATA, length=len(st(GOOD)) - 9)
    yield "cut_in_header", full[:40]
    yield "cut_in_data", full[:-1]
    yield "not_utf8", raw(b'{"\xff\xfe":' + json.dumps(st_tensor()).encode() + b"}")
    yield "overlong_utf8", raw(b'{"\xc0\xaf":' + json.dumps(st_tensor()).encode() + b"}")
    yield "surrogate_utf8", raw(b'{"\xed\xa0\x80":' + json.dumps(st_tensor()).encode() + b"}")
    yield "lone_surrogate", raw('{"\\ud800":' + json.dumps(st_tensor()) + "}")
    yield "array", folder(raw("[]", b""))
    yield "string", folder(raw('"abc"', b""))
    yield "number", folder(raw("12345678", b""))
    yield "leading_space", folder(raw(" " + json.dumps(GOOD)))
    yield "byte_order_mark", folder(raw(b"\xef\xbb\xbf" + json.dumps(GOOD).encode()))
    yield "garbage_behind", raw(json.dumps(GOOD) + "x")
    yield "newline_behind", raw(json.dumps(GOOD) + "\n")
    yield "nul_behind", raw(json.dumps(GOOD) + "\0")
    yield "two_objects", raw(json.dumps(GOOD) + "{}")
    yield "not_closed", raw(json.dumps(GOOD)[:-1])
    yield "comma_at_end", raw(json.dumps(GOOD)[:-1] + ",}")
    yield "comment", raw(json.dumps(GOOD)[:-1] + "/**/}")
    yield "single_quotes", raw("{'a':" + json.dumps(st_tensor()) + "}")
    yield "control_character", raw('{"a\n":' + json.dumps(st_tensor()) + "}")
    yield "bad_escape", raw('{"a\\x":' + json.dumps(st_tensor()) + "}")
    yield "nul_in_name", raw('{"a\\u0000b":' + json.dumps(st_tensor()) + "}")
    yield "nul_byte_in_name", raw('{"a\0b":' + json.dumps(st_tensor()) + "}")
    yield "name_twice", raw('{"a":%s,"a":%s}' % ((json.dumps(st_tensor()),) * 2))
    yield "name_twice_escaped", raw(
        '{"a":%s,"\\u0061":%s}' % (json.dumps(st_tensor(0, 4, shape=[1])), json.dumps(st_tensor(4, 8, shape=[1])))
    )
    yield "deep_nesting", raw('{"a":' + "[" * 3000 + "]" * 3000 + "}", b"")
    yield "deep_objects", raw('{"a":' * 700 + "1" + "}" * 700, b"")


def tensor_cases():
    yield "tensor_is_array", one("[1]")
    yield "tensor_is_null", one("null")
    yield "tensor_is_empty", one("{}")
    yield "no_dtype", one('{"shape":[2],"data_offsets":[0,8]}')
    yield "no_shape", one('{"dtype":"F32","data_offsets":[0,8]}')
    yield "no_offsets", one('{"dtype":"F32","shape":[2]}')
    yield "unknown_field", with_field(more=',"strides":[1]')
    yield "field_twice", with_field(more=',"shape":[2]')
    yield "dtype_unknown", with_field('"F99"')
    yield "dtype_lower_case", with_field('"f32"')
    yield "dtype_number", with_field("32")
    yield "dtype_null", with_field("null")
    yield "dtype_f6", with_field('"F6_E2M3"', "[8]", "[0,6]")
    yield "dtype_f4_odd", with_field('"F4"', "[15]")
    yield "shape_nan", with_field(shape="[NaN]")
    yield "shape_fraction", with_field(shape="[2.0]")
    yield "shape_exponent", with_field(shape="[2e0]")
    yield "shape_negative", with_field(shape="[-2]")
    yield "shape_minus_zero", with_field(shape="[-0]", offsets="[0,0]")
    yield "shape_leading_zero", with_field(shape="[02]")
    yield "shape_hex", with_field(shape="[0x2]")
    yield "shape_string", with_field(shape='["2"]')
    yield "shape_true", with_field(shape="[true]")
    yield "shape_nested", with_field(shape="[[2]]")
    yield "shape_number", with_field(shape="2")
    yield "shape_above_u64", with_field(shape="[18446744073709551616]")
    yield "shape_above_i64", with_field(shape="[9223372036854775808]")
    yield "shape_long_number", with_field(shape="[" + "9" * 400 + "]")
    yield "shape_product_wraps", with_field(
        shape="[4194305,4194305,211106198978564]", offsets="[0,16]"
    )
    yield "shape_product_2_64", with_field(shape="[4294967296,4294967296]", offsets="[0,0]")
    yield "shape_bytes_wrap", with_field(shape="[4611686018427387904]", offsets="[0,0]")
    yield "shape_2_62_by_0", with_field(shape="[4611686018427387904,8,0]", offsets="[0,0]")
    yield "shape_9_dims", with_field(shape="[1,1,1,1,1,1,1,1,2]")
    yield "offsets_nan", with_field(offsets="[0,NaN]")
    yield "offsets_fraction", with_field(offsets="[0,8.0]")
    yield "offsets_exponent", with_field(offsets="[0,8e0]")
    yield "offsets_negative", with_field(offsets="[-8,0]")
    yield "offsets_above_u64", with_field(offsets="[0,18446744073709551616]")
    yield "offsets_backwards", with_field(offsets="[8,0]")
    yield "offsets_one", with_field(offsets="[8]")
    yield "offsets_three", with_field(offsets="[0,8,8]")
    yield "offsets_string", with_field(offsets='"0,8"')
    yield "offsets_past_end", with_field(shape="[4]", offsets="[0,16]")
    yield "bytes_too_few", with_field(shape="[3]")
    yield "bytes_too_many", with_field(shape="[1]")
    yield "not_from_0", with_field(shape="[1]", offsets="[4,8]")
    yield "not_to_the_end", with_field(shape="[1]", offsets="[0,4]")
    yield "data_without_tensors", raw("{}")
    two = {"a": st_tensor(0, 4, shape=[1]), "b": st_tensor(8, 12, shape=[1])}
    yield "hole", st(two, bytes(12))
    two = {"a": st_tensor(0, 8), "b": st_tensor(4, 12)}
    yield "overlap", st(two, bytes(12))
    two = {"a": st_tensor(0, 8), "b": st_tensor(0, 8)}
    yield "same_place", st(two, bytes(8))
    two = {"a": st_tensor(0, 8), "b": st_tensor(4, 4, shape=[0])}
    yield "empty_inside_another", st(two, bytes(8))


def metadata_cases():
    def meta(text):
        return raw('{"__metadata__":%s,"a":%s}' % (text, json.dumps(st_tensor())))

    yield "metadata_null", meta("null")
    yield "metadata_array", meta("[]")
    yield "metadata_number_value", meta('{"k":1}')
    yield "metadata_nested_value", meta('{"k":{}}')
    yield "metadata_key_twice", meta('{"k":"1","k":"2"}')
    twice = '{"__metadata__":{},"__metadata__":{},"a":%s}' % json.dumps(st_tensor())
    yield "metadata_twice", raw(twice)

    def shard(text, shape=(2,), name="a"):
        info = {"DCP_SHARDING_INFO": text, "DCP_VERSION": "1.0", "format": "pt"}
        return st({"__metadata__": info, name: st_tensor(shape=shape)}, DATA)

    yield "sharding_no_json", shard("x")
    yield "sharding_other_tensor", shard('{"b":{"saved_offsets":[0]}}')
    yield "sharding_no_offsets", shard('{"a":{}}')
    yield "sharding_negative", shard('{"a":{"saved_offsets":[-1]}}')
    yield "sharding_wrong_dims", shard('{"a":{"saved_offsets":[0,0]}}')
    yield "sharding_overflow", shard('{"a":{"saved_offsets":[9223372036854775807]}}')
    yield "sharding_hole", shard('{"a":{"saved_offsets":[2]}}')
    first, second = '{"a":{"saved_offsets":[0]}}', '{"a":{"saved_offsets":[1]}}'
    names = "shard-00001-model-00001-of-00001.safetensors", "shard-00002-model-00001-of-00001.safetensors"
    yield "sharding_overlap", {names[0]: shard(first), names[1]: shard(second)}
    yield "files_share_a_name", {"a.safetensors": st(GOOD, DATA), "b.safetensors": st(GOOD, DATA)}
    other = st({"a": st_tensor(0, 8, "I32")}, DATA)
    yield "files_other_dtype", {"a.safetensors": st(GOOD, DATA), "b.safetensors": other}


def index_cases():
    files = {"a.safetensors": st(GOOD, DATA), "b.safetensors": st({"b": st_tensor()}, DATA)}

    def indexed(weight_map, files=files, **more):
        text = weight_map if isinstance(weight_map, (str, bytes)) else json.dumps({"weight_map": weight_map, **more})
        text = text if isinstance(text, bytes) else text.encode()
        return {"model.safetensors.index.json": text, **files}

    both = {"a": "a.safetensors", "b": "b.safetensors"}
    yield "missing_file", indexed({**both, "c": "c.safetensors"})
    yield "no_files", indexed(both, {})
    yield "tensor_not_in_file", indexed({**both, "c": "b.safetensors"})
    yield "tensor_in_other_file", indexed({"a": "b.safetensors", "b": "a.safetensors"})
    yield "tensor_not_in_index", indexed(
        both, {**files, "b.safetensors": st({"b": st_tensor(), "x": st_tensor(8, 16)}, bytes(16))}
    )
    yield "tensor_twice", indexed('{"weight_map":{"a":"a.safetensors","a":"a.safetensors"}}')
    yield "map_twice", indexed('{"weight_map":{},"weight_map":{}}')
    yield "no_map", indexed('{"metadata":{"total_size":8}}')
    yield "map_is_array", indexed('{"weight_map":[]}')
    yield "file_is_number", indexed('{"weight_map":{"a":1}}')
    yield "parent_folder", indexed({"a": "../a.safetensors"})
    yield "dot_dot", indexed({"a": ".."})
    yield "absolute", indexed({"a": "/etc/passwd"})
    yield "below", indexed({"a": "sub/a.safetensors"})
    yield "empty_name", indexed({"a": ""})
    yield "nul_in_file", indexed('{"weight_map":{"a":"a\\u0000"}}')
    yield "nul_in_tensor", indexed('{"weight_map":{"a\\u0000":"a.safetensors"}}')
    yield "control_character_in_file", indexed('{"weight_map":{"a":"a\\u0007"}}')
    yield "empty_file", indexed("")
    yield "not_json", indexed("hello")
    yield "array", indexed("[]")
    yield "cut", indexed('{"weight_map":{"a":"a.saf')
    yield "trailing_garbage", indexed('{"weight_map":{}} x')
    yield "not_utf8", indexed(b'{"weight_map":{"\xff":"a.safetensors"}}')
    yield "metadata_array", indexed('{"metadata":[],"weight_map":{}}')
    yield "broken_file", indexed(both, {**files, "b.safetensors": b"\0" * 8 + b"x"})


def sharded_cases():
    """vLLM's sharded_state: all parts of one rank."""

    def parts(*files, ranks=None):
        names = [f"model-rank-{r}-part-{i}.safetensors" for i, r in enumerate(ranks or [0] * len(files))]
        return dict(zip(names, files))

    def tensor(name, data=DATA, offsets="[0,8]", dtype="F32"):
        return raw(f'{{"{name}":{{"dtype":"{dtype}","shape":[2],"data_offsets":{offsets}}}}}', data)

    whole = parts(tensor("a"), tensor("b"))
    yield "whole", whole
    yield "two_ranks", parts(tensor("a"), tensor("a"), ranks=(0, 1))
    yield "part_is_missing", {k: v for k, v in parts(tensor("a"), tensor("b"), tensor("c")).items() if "part-1" not in k}
    yield "first_part_is_missing", {k: v for k, v in whole.items() if "part-0" not in k}
    yield "the_same_name_twice", parts(tensor("a"), tensor("a"))
    yield "cut", parts(tensor("a"), tensor("b")[:-1])
    yield "bytes_behind", parts(tensor("a"), tensor("b") + b"x")
    yield "empty_file", parts(tensor("a"), b"")
    yield "no_json", parts(tensor("a"), raw("{"))
    yield "offsets_outside", parts(tensor("a"), tensor("b", offsets="[0,16]"))
    yield "unknown_dtype", parts(tensor("a"), tensor("b", dtype="F99"))
    yield "huge_rank", whole | {"model-rank-999999999-part-0.safetensors": tensor("c")}
    yield "variant_beside", whole | {"model-rank-0-part-0.fp16.safetensors": tensor("a")}


def other_cases():
    yield "empty_file", b""
    yield "one_byte", b"P"
    yield "text.txt", b"This is no checkpoint.\n"
    yield "json.json", b'{"weights": []}\n'
    yield "zeros.bin", bytes(64)
    yield "legacy_tar.pt", tar()
    yield "bare_protocol_4.pkl", pkl(lst(num(1)), 4)
    yield "protocol_0.pkl", b"(lp0\nI1\na."
    yield "gzip.pt", b"\x1f\x8b\x08\0\0\0\0\0\0\3" + bytes(20)
    yield "empty_zip.pt", Zip([]).out()
    yield "folder_of_text", {"README.txt": b"hello\n"}
    yield "unfinished_save", {".metadata.tmp": dcp()[".metadata"], "__0_0.distcp": item()}
    yield "data_without_metadata", {"__0_0.distcp": item()}
    yield "lfs_pointer.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 8\n"


def tar():
    """torch.save before 0.1.10: a tar of three files; one is enough here."""
    head = bytearray(512)
    head[:8], head[100:107], head[124:135], head[156:157] = b"storages", b"0000644", b"%011o" % 4, b"0"
    head[257:263] = b"ustar\0"
    head[148:156] = b"%06o\0 " % (sum(head) + 8 * 32)
    return bytes(head) + b"abcd" + bytes(508) + bytes(1024)


def cases():
    for path, content in [*header_cases(), *tensor_cases(), *metadata_cases()]:
        yield "st/" + path + (".safetensors" if isinstance(content, bytes) else ""), content
    for path, content in index_cases():
        yield "index/" + path, content
    for path, content in sharded_cases():
        yield "sharded/" + path, content
    for path, content in other_cases():
        yield "other/" + path, content

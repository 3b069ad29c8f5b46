# SPDX-License-Identifier: Apache-2.0
"""Broken DCP checkpoints: metadata that contradict themselves or the files, items that are not what
the metadata say. Each case is a path and the content; see make_bad.py."""

import struct

from bad_build import *

ITEM = item()
N = len(ITEM)
W = index("w", (0,))


def named(path):
    return dcp(rows=[(W, info(path, length=N))])


def bare(raw):
    return {".metadata": raw, "__0_0.distcp": ITEM}


def pickle_cases():
    good = dcp()[".metadata"]
    yield "empty_metadata", bare(b"")
    yield "text_metadata", bare(b"hello\n")
    yield "cut_metadata", bare(good[: len(good) // 2])
    yield "no_stop", bare(good[:-1])
    yield "bytes_behind_stop", bare(good + b"x")
    yield "metadata_is_none", bare(pkl(NONE, 4))
    yield "metadata_is_dict", bare(pkl(dct((txt("state_dict_metadata"), dct())), 4))
    yield "metadata_without_state", bare(pkl(stack_glob(META, "Metadata") + b")\x81", 4))
    yield "metadata_state_is_list", bare(pkl(obj(META, "Metadata", lst(NONE)), 4))
    yield "memo_2_30", bare(pkl(NONE + b"r\0\0\0\x40", 4))
    yield "calls_os_system", bare(pkl(call(stack_glob("os", "system"), txt("id")), 4))
    yield "calls_posix_system", bare(pkl(call(glob("posix", "system"), txt("id")), 2))
    yield "calls_eval_inside", dcp(version=call(stack_glob("builtins", "eval"), txt("1")))
    yield "calls_by_inst", bare(pkl(b"(ios\nsystem\n", 2))
    yield "calls_by_build", dcp(version=stack_glob("subprocess", "Popen") + b")\x81" + dct() + b"b")
    yield "calls_by_newobj_ex", dcp(version=stack_glob("subprocess", "Popen") + tup(txt("id")) + b"}\x92")
    yield "calls_in_planner", dcp(planner=[("w", call(stack_glob("os", "getcwd")))])
    getattr_of = stack_glob("builtins", "getattr")
    yield "getattr_of_a_class", bare(pkl(call(getattr_of, stack_glob("torch", "Size"), txt("count")), 4))
    yield "getattr_of_os", bare(pkl(call(getattr_of, stack_glob("os", "path"), txt("os")), 4))
    formats = stack_glob(META, "_MEM_FORMAT_ENCODING")
    yield "getattr_of_formats", bare(pkl(call(call(getattr_of, formats, txt("mro"))), 4))
    yield "getattr_called", bare(pkl(call(call(getattr_of, formats, txt("TORCH_CONTIGUOUS_FORMAT"))), 4))
    yield "names_os_system", dcp(version=stack_glob("os", "system"))
    yield "unknown_class", dcp(extra=obj("my.project", "Extra", dct()))
    evil = stack_glob("os", "system")
    yield "dtype_os_system", dcp([("w", tensor_meta(dtype=evil))])
    yield "checkpoint_id_calls", dcp(
        storage_meta=obj(META, "StorageMeta", dct((txt("checkpoint_id"), call(stack_glob("os", "getcwd")))))
    )


def class_cases():
    yield "no_state_dict", dcp(state_dict_metadata=None)
    yield "no_storage_data", dcp(storage_data=None)
    yield "storage_data_none", dcp(storage_data=NONE)
    yield "storage_data_list", dcp(storage_data=lst(W))
    yield "state_dict_list", dcp(state_dict_metadata=lst(txt("w")))
    yield "tensor_is_none", dcp([("w", NONE)])
    yield "tensor_is_chunk", dcp([("w", chunk((0,), (2,)))])
    yield "tensor_name_number", dcp(state_dict_metadata=dct((num(1), tensor_meta())))
    yield "tensor_name_nul", dcp([("a\0b", tensor_meta())])
    yield "tensor_twice", dcp([("w", tensor_meta()), ("w", tensor_meta())])
    yield "tensor_no_chunks", dcp(
        [("w", obj(META, "TensorStorageMetadata", dct((txt("properties"), properties()), (txt("size"), size(2)))))]
    )
    yield "tensor_no_state", dcp([("w", stack_glob(META, "TensorStorageMetadata") + b")\x81")])
    yield "chunk_is_text", dcp([("w", tensor_meta(chunks=[txt("x")]))])
    yield "chunk_no_sizes", dcp(
        [("w", tensor_meta(chunks=[obj(META, "ChunkStorageMetadata", dct((txt("offsets"), size(0))))]))]
    )
    yield "size_of_text", dcp(
        [("w", tensor_meta(chunks=[chunk((0,), (2,)).replace(size(2), call(stack_glob("torch", "Size"), txt("2")))]))]
    )
    yield "properties_short", dcp(
        [("w", tensor_meta().replace(properties(), obj(META, "TensorProperties", tup(NONE, NONE))))]
    )
    yield "dtype_unknown", dcp([("w", tensor_meta(dtype="float3"))])
    yield "dtype_quantized", dcp([("w", tensor_meta(dtype="qint8"))])
    yield "dtype_is_text", dcp([("w", tensor_meta(dtype=txt("float32")))])
    yield "row_key_is_text", dcp(rows=[(txt("w"), info(length=N))])
    yield "row_is_none", dcp(rows=[(W, NONE)])
    yield "row_no_length", dcp(
        rows=[(W, obj(FILES, "_StorageInfo", dct((txt("relative_path"), txt("__0_0.distcp")), (txt("offset"), num(0)))))]
    )
    yield "row_length_negative", dcp(rows=[(W, info(length=-1))])
    yield "row_offset_negative", dcp(rows=[(W, info(offset=-1, length=N))])
    yield "row_sum_wraps", dcp(rows=[(W, info(offset=2**63 - 1, length=N))])
    yield "row_length_2_70", dcp(rows=[(W, info(length=2**70))])
    yield "index_no_name", dcp(rows=[(obj(META, "MetadataIndex", dct((txt("offset"), size(0)))), info(length=N))])
    yield "index_offset_text", dcp(
        rows=[(obj(META, "MetadataIndex", dct((txt("fqn"), txt("w")), (txt("offset"), txt("0")))), info(length=N))]
    )
    yield "transforms_text", dcp(
        rows=[(W, info(length=N, transforms=[]).replace(b"](e", txt("stream.zstd")))]
    )
    yield "transforms_numbers", dcp(rows=[(W, info(length=N, transforms=[]).replace(b"](e", lst(num(1))))])
    yield "planner_not_joined", dcp(planner=[("w", tup(txt("v")))])
    yield "planner_too_long", dcp(planner=[("w", tup(txt("w"), txt("x")))])
    yield "planner_empty_path", dcp(planner=[("w", tup())])
    yield "planner_no_path", dcp(planner=[("w", num(1))])
    yield "planner_unknown_name", dcp(planner=[("w", tup(txt("w"))), ("x", tup(txt("x")))])


def geometry_cases():
    def cut(*chunks, shape=(2,), rows=None):
        boxes = [chunk(*c) for c in chunks]
        rows = [(index("w", c[0]), info(offset=0, length=0)) for c in chunks] if rows is None else rows
        return dcp([("w", tensor_meta(shape, boxes))], rows)

    whole = ((0,), (2,))
    yield "chunk_outside", cut(((0,), (3,)))
    yield "chunk_offset_outside", cut(((3,), (1,)))
    yield "chunk_negative_offset", cut(((-1,), (2,)))
    yield "chunk_negative_size", cut(((0,), (-2,)))
    yield "chunk_sum_wraps", cut(((1,), (2**63 - 1,)))
    yield "chunk_other_dims", cut(((0, 0), (2, 1)))
    yield "chunk_9_dims", cut(((0,) * 9, (1,) * 9), shape=(1,) * 9)
    yield "shape_negative", cut(whole, shape=(-2,))
    yield "shape_overflows", cut(((0, 0), (2**40, 2**40)), shape=(2**40, 2**40))
    yield "chunks_overlap", cut(((0,), (2,)), ((1,), (1,)))
    yield "chunks_overlap_2d", cut(((0, 0), (2, 2)), ((1, 1), (1, 1)), shape=(2, 2))
    yield "chunks_leave_hole", cut(((0,), (1,)))
    yield "chunks_leave_hole_2d", cut(((0, 0), (1, 2)), ((1, 0), (1, 1)), shape=(2, 2))
    yield "chunk_twice", cut(whole, whole, rows=[(W, info(length=N))])
    yield "no_chunks", cut(rows=[])
    yield "row_without_chunk", cut(whole, rows=[(W, info(length=N)), (index("w", (1,)), info(length=N))])
    yield "row_other_dims", cut(whole, rows=[(index("w", (0, 0)), info(length=N))])
    yield "row_without_offset", cut(whole, rows=[(index("w"), info(length=N))])
    yield "row_twice", cut(whole, rows=[(W, info(length=N)), (W, info(length=N))])
    yield "row_of_nothing", cut(whole, rows=[(W, info(length=N)), (index("x", (0,)), info(length=N))])
    yield "chunk_without_row", cut(whole, rows=[])
    yield "object_without_row", dcp([("w", tensor_meta()), ("step", BYTES_META)])
    yield "object_with_offset", dcp([("w", BYTES_META)])


def place_cases():
    two = [("w", tensor_meta()), ("v", tensor_meta())]
    yield "item_past_end", dcp(rows=[(W, info(length=N + 1))])
    yield "item_starts_past_end", dcp(rows=[(W, info(offset=N + 1, length=0))])
    yield "items_overlap", dcp(
        two, [(W, info(length=N)), (index("v", (0,)), info(offset=N - 1, length=N))], ITEM * 2
    )
    yield "items_same_place", dcp(two, [(W, info(length=N)), (index("v", (0,)), info(length=N))])
    yield "file_missing", {".metadata": dcp()[".metadata"]}
    yield "file_empty", {".metadata": dcp()[".metadata"], "__0_0.distcp": b""}
    yield "file_cut", {".metadata": dcp()[".metadata"], "__0_0.distcp": ITEM[:-1]}
    yield "path_parent", named("../path_parent/__0_0.distcp")
    yield "path_dot_dot", named("..")
    yield "path_dot", named(".")
    yield "path_absolute", named("/etc/passwd")
    yield "path_below", named("sub/__0_0.distcp")
    yield "path_empty", named("")
    yield "path_nul", named("__0_0.distcp\0x")
    yield "path_control_character", named("a\nb")
    yield "path_metadata", named(".metadata")
    yield "path_is_number", dcp(
        rows=[(W, info(length=N).replace(txt("__0_0.distcp"), num(1)))]
    )
    yield "path_long", named("a" * 300)


def item_cases():
    def of(pickle_body, data=FLOATS, **style):
        return dcp_item(item(pkl(pickle_body), data, **style))

    yield "item_shorter_than_row", dcp_item(ITEM + b"\0")
    yield "item_longer_than_row", dcp_item(ITEM, N - 1)
    yield "item_row_empty", dcp_item(ITEM, 0)
    yield "item_starts_late", dcp_item(ITEM, N - 1, offset=1)
    yield "item_garbage", dcp_item(b"garbage " * 20)
    yield "item_zeros", dcp_item(bytes(200))
    yield "item_other_dtype", of(tensor(cls="IntStorage"))
    yield "item_other_shape", of(tensor(numel=3, size=(3,)), FLOATS + FLOATS[:4])
    yield "item_other_dims", of(tensor(size=(1, 2), stride=(2, 1)))
    yield "item_no_dims", of(tensor(size=(), stride=()))
    yield "item_is_number", of(num(7))
    yield "item_is_dict", of(dct((txt("w"), tensor())))
    yield "item_calls_os_system", of(call(glob("os", "system"), txt("id")))
    yield "item_calls_by_newobj", of(glob("subprocess", "Popen") + tup(txt("id")) + b"\x81")
    yield "item_memo_bomb", of(NONE + b"r\0\0\0\x40")
    yield "item_view_outside", of(tensor(offset=1))
    yield "item_no_storage", dcp_item(Zip(records(pkl(tensor()), None)).out())
    yield "item_no_pickle", dcp_item(Zip(records(pkl(tensor()))[1:]).out())
    yield "item_version_99", dcp_item(Zip(records(pkl(tensor()), version=b"99")).out())
    flipped = bytearray(ITEM)
    flipped[ITEM.index(FLOATS) + 2] ^= 4
    yield "item_bit_flipped", dcp_item(bytes(flipped))
    flipped = bytearray(ITEM)
    flipped[ITEM.index(b"FloatStorage")] ^= 1
    yield "item_pickle_flipped", dcp_item(bytes(flipped))


def object_cases():
    run = txt("echo pwned > pwned")
    yield "object_calls_os_system", dcp_object(call(glob("os", "system"), run))
    yield "object_calls_inside", dcp_object(lst(num(1), call(glob("builtins", "eval"), run)))
    yield "object_calls_by_newobj", dcp_object(glob("subprocess", "Popen") + tup(run) + b"\x81")
    yield "object_calls_by_build", dcp_object(glob("posix", "system") + b")\x81" + dct() + b"b")
    yield "object_calls_by_inst", dcp_object(b"(ios\nsystem\n")
    yield "object_memo_bomb", dcp_object(NONE + b"r\xff\xff\xff\x7f")
    yield "object_nested", dcp_object(b"]" * 600 + b"a" * 599)
    yield "object_underflow", dcp_object(b"a")
    yield "object_tensor_without_storage", dcp_object(tensor())
    many = lst(tensor(4000, (4000,)) + b"q\0" + b"h\0" * 999)
    raw = Zip(records(pkl(many), bytes(16000))).out()
    yield "object_tensor_1000_times", dcp([("step", BYTES_META)], [(index("step"), info(length=len(raw)))], raw)
    raw = Zip(records(pkl(lst(tensor(), tensor())), FLOATS))
    raw.bytes[raw.at["data", "data/0"]] ^= 1
    raw = raw.out()
    yield "object_tensor_flipped", dcp([("step", BYTES_META)], [(index("step"), info(length=len(raw)))], raw)


def transform_cases():
    def packed(raw, *names, declared=None):
        return dcp_item(raw, declared, transforms=list(names) or ["stream.zstd"])

    good = zstd(ITEM)
    yield "transform_unknown", packed(ITEM, "stream.lz9")
    yield "transform_version", packed(good, "stream.zstd/99")
    yield "transform_empty_name", packed(good, "")
    yield "transform_nul_name", packed(good, "stream.zstd\0x")
    yield "transform_of_garbage", packed(b"garbage " * 20)
    yield "transform_of_plain_item", packed(ITEM)
    yield "transform_of_nothing", packed(b"")
    yield "transform_cut", packed(good[:-20])
    yield "transform_cut_in_magic", packed(good[:3])
    yield "transform_trailing", packed(good + b"junk")
    yield "transform_twice", packed(good, "stream.zstd", "stream.zstd")
    yield "transform_of_short_item", packed(zstd(ITEM[:-1]))
    yield "transform_bomb", packed(zstd_bomb(500))
    yield "transform_window", packed(b"\x28\xb5\x2f\xfd\x00\xa8" + good[6:])
    yield "transform_17", packed(good, *["stream.zstd"] * 17)
    yield "transform_9", packed(good, *["stream.zstd"] * 9)
    bomb = zstd_bomb(200)
    rows = [(index("step"), info(length=len(bomb), transforms=["stream.zstd"]))]
    yield "transform_object_bomb", dcp([("step", BYTES_META)], rows, bomb)


def rank_cases():
    """__<rank>.metadata of each rank instead of one .metadata."""

    def part(offset, file, shape=(4,), dtype="float32", length=N):
        meta = tensor_meta(shape, [chunk((offset,), (2,))], dtype)
        return metadata([("w", meta)], [(index("w", (offset,)), info(file, length=length))])

    files = {"__0_0.distcp": ITEM, "__1_0.distcp": ITEM}
    first = part(0, "__0_0.distcp")
    yield "ranks_overlap", {"__0.metadata": first, "__1.metadata": part(1, "__1_0.distcp"), **files}
    yield "ranks_hole", {"__0.metadata": first, **files}
    yield "ranks_other_shape", {"__0.metadata": first, "__1.metadata": part(2, "__1_0.distcp", (5,)), **files}
    other = part(2, "__1_0.distcp", dtype="int32")
    yield "ranks_other_dtype", {"__0.metadata": first, "__1.metadata": other, **files}
    yield "ranks_broken", {"__0.metadata": first, "__1.metadata": b"\x80\x04", **files}


def mcore_cases():
    """Megatron-Core: a tensor [2, 4] cut into blocks [2, 2] is stored as [1, 2, 4]."""
    flat = Zip(records(pkl(tensor(size=(1, 1, 4), stride=(4, 4, 1), numel=4)), struct.pack("<4f", *range(4)))).out()

    def mcore(true, shape=(1, 2, 4), at=((0, 0, 0), (0, 1, 0)), sizes=(1, 1, 4), **other):
        body = true if isinstance(true, bytes) else ints(*true)
        data = dct((txt("w"), dct((txt("nd_reformulated_orig_global_shape"), body))))
        rows = [(index("w", o), info(offset=i * len(flat), length=len(flat))) for i, o in enumerate(at)]
        return dcp([("w", tensor_meta(shape, [chunk(o, sizes) for o in at]))], rows, flat * len(at),
                   **{"mcore_data": data, **other})

    yield "mcore_fine", mcore((2, 4))
    yield "mcore_other_product", mcore((2, 6))
    yield "mcore_not_divisible", mcore((4, 5))
    yield "mcore_negative", mcore((-2, -4))
    yield "mcore_zero", mcore((0, 4))
    yield "mcore_overflow", mcore((2**62, 2**62))
    yield "mcore_more_dimensions", mcore((1, 2, 4, 1))
    yield "mcore_nine_dimensions", mcore((1,) * 9)
    yield "mcore_text", mcore(txt("2, 4"))
    yield "mcore_calls", mcore(call(stack_glob("os", "getcwd")))
    yield "mcore_large_chunk", mcore((2, 4), at=((0, 0, 0),), sizes=(1, 2, 4))
    yield "mcore_list", mcore((2, 4), mcore_data=lst(txt("w")))
    yield "mcore_other_name", mcore((2, 4), mcore_data=dct((txt("v"), dct())))
    yield "mcore_hole", mcore((2, 4), at=((0, 0, 0),))


def unknown_cases():
    """Fields that later versions may add."""
    foreign = obj("my.project", "Extra", dct((txt("x"), num(1))))

    def more(made, *pairs):
        return made[:-2] + b"".join(k + v for k, v in pairs) + b"ub"

    row = info(length=N)
    yield "unknown_in_chunk", dcp([("w", tensor_meta(chunks=[more(chunk((0,), (2,)), (txt("codec"), foreign))]))])
    yield "unknown_in_tensor", dcp([("w", more(tensor_meta(), (txt("stats"), foreign)))])
    yield "unknown_in_row", dcp(rows=[(W, more(row, (txt("encryption"), txt("aes"))))])
    yield "unknown_class_in_row", dcp(rows=[(W, more(row, (txt("codec"), foreign)))])
    yield "unknown_in_key", dcp(rows=[(more(index("w", (0,)), (txt("stripe"), num(1))), row)])
    yield "unknown_transform_object", dcp(rows=[(W, more(row, (txt("transform_descriptors"), lst(foreign))))])
    yield "unknown_in_storage_meta", dcp(storage_meta=obj(META, "StorageMeta", dct((txt("region"), foreign))))

    def slots(module, name, *pairs):
        """As pickled by a dataclass with slots: the state is (None, attributes)."""
        return stack_glob(module, name) + b")\x81" + NONE + dct(*pairs) + b"\x86b"

    box = slots(META, "ChunkStorageMetadata", (txt("offsets"), size(0)), (txt("sizes"), size(2)), (txt("codec"), foreign))
    tensor = slots(META, "TensorStorageMetadata",
                   (txt("properties"), properties()), (txt("size"), size(2)), (txt("chunks"), lst(box)))
    frozen = obj(META, "MetadataIndex", lst(txt("w"), size(0), num(0)))
    place = slots(FILES, "_StorageInfo",
                  (txt("relative_path"), txt("__0_0.distcp")), (txt("offset"), num(0)), (txt("length"), num(N)))
    about = slots(META, "StorageMeta", (txt("save_id"), txt("x")), (txt("region"), foreign))
    whole = slots(META, "Metadata", (txt("state_dict_metadata"), dct((txt("w"), tensor))), (txt("planner_data"), NONE),
                  (txt("storage_data"), dct((frozen, place))), (txt("storage_meta"), about))
    yield "slots", bare(pkl(whole, 4))
    wrong = obj(META, "MetadataIndex", lst(txt("w"), size(0), num(0), num(1)))
    yield "slots_with_a_field_more", dcp(rows=[(wrong, row)])


def cases():
    groups = (pickle_cases(), class_cases(), geometry_cases(), place_cases(), item_cases(), object_cases(),
              transform_cases(), rank_cases(), mcore_cases(), unknown_cases())
    for path, content in [c for group in groups for c in group]:
        yield "dcp/" + path, content

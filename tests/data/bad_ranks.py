# SPDX-License-Identifier: Apache-2.0
"""Broken folders of torch.save files: one for each rank, with DTensors in them."""

import pathlib
import struct
import sys

from bad_build import FALSE, NONE, Zip, call, dct, glob, ints, lst, num, pkl, records, tensor, tup, txt, value

TYPES = "torch.distributed.tensor.placement_types"


def built(module, name, *attributes):
    """An object that gets its state."""
    return glob(module, name) + b")\x81" + dct(*attributes) + b"b"


def shard(dim=0):
    return built(TYPES, "Shard", (txt("dim"), num(dim)))


def strided(dim=0, factor=2):
    return built(TYPES, "_StridedShard", (txt("dim"), num(dim)), (txt("split_factor"), num(factor)))


def partial():
    return built(TYPES, "Partial", (txt("reduce_op"), txt("sum")))


def replicate():
    return glob(TYPES, "Replicate") + b")\x81"


def mesh(shape, coord):
    layout = built("torch.distributed._mesh_layout", "_MeshLayout", (txt("shape"), ints(*shape)))
    where = NONE if coord is None else ints(*coord)
    return built(
        "torch.distributed.device_mesh", "DeviceMesh", (txt("_layout"), layout), (txt("_coordinate_on_dim"), where)
    )


def dtensor(rank=0, shape=(4,), on=(2,), coord=None, place=None, local=None):
    spec = built(
        "torch.distributed.tensor._dtensor_spec",
        "DTensorSpec",
        (txt("mesh"), mesh(on, (rank,) if coord is None else coord)),
        (txt("placements"), tup(*(place or [shard()]))),
    )
    state = dct((txt("_local_tensor"), local or tensor()), (txt("_spec"), spec))
    cls = glob("torch.distributed.tensor", "DTensor")
    args = b"(" + cls + glob("torch", "float32") + ints(*shape) + ints(1) + num(0) + NONE + NONE + FALSE + b"t"
    return call(glob("torch._tensor", "_rebuild_from_type_v2"), glob("torch._utils", "_rebuild_wrapper_subclass"), cls, args, state)


def slots(module, name, *attributes):
    """An object whose state is that of slots."""
    return glob(module, name) + b")\x81" + tup(NONE, dct(*attributes)) + b"b"


def sharded(rank=0, shape=(4,), world=2, off=None, size=(2,), local=None):
    """A ShardedTensor of which the rank has one part."""
    shard_of = "torch.distributed._shard."
    where = (txt("shard_offsets"), lst(*map(num, (2 * rank,) if off is None else off))), (txt("shard_sizes"), lst(*map(num, size)))
    metadata = slots(shard_of + "metadata", "ShardMetadata", *where)
    part = slots(shard_of + "sharded_tensor.shard", "Shard", (txt("tensor"), local or tensor()), (txt("metadata"), metadata))
    group = built("reshard_made_up", "ProcessGroupState", (txt("local_rank"), num(rank)), (txt("local_world_size"), num(world)))
    cls = glob(shard_of + "sharded_tensor.api", "ShardedTensor")
    args = b"(" + cls + glob("torch", "float32") + ints(*shape) + ints(1) + num(0) + NONE + NONE + FALSE + b"t"
    state = b"(" + lst(part) + NONE + group + NONE + FALSE + b"t"
    return call(glob("torch._tensor", "_rebuild_from_type_v2"), glob("torch._utils", "_rebuild_wrapper_subclass"), cls, args, state)


def file(*pairs, data=struct.pack("<2f", 1, 2)):
    return Zip(records(pkl(dct(*((txt(name), body) for name, body in pairs))), data)).out()


def two(**how):
    """Each rank has half of w; `how` is for the second."""
    return {"rank_0.pt": file(("w", dtensor(0))), "rank_1.pt": file(("w", dtensor(**{"rank": 1} | how)))}


def two_sharded(**how):
    return {"rank_0.pt": file(("w", sharded(0))), "rank_1.pt": file(("w", sharded(**{"rank": 1} | how)))}


def cases():
    whole = two()
    yield "ranks/whole", whole
    yield "ranks/names_in_another_order", {"rank_0.pt": whole["rank_1.pt"], "rank_1.pt": whole["rank_0.pt"]}
    yield "ranks/one_is_missing", {"rank_0.pt": whole["rank_0.pt"]}
    yield "ranks/the_same_rank_twice", {"rank_0.pt": whole["rank_0.pt"], "rank_1.pt": whole["rank_0.pt"]}
    yield "ranks/other_shape", two(shape=(5,))
    yield "ranks/other_mesh", two(on=(3,))
    yield "ranks/coordinate_outside", two(rank=2)
    yield "ranks/negative_coordinate", two(rank=-1)
    yield "ranks/rank_outside_the_mesh", {
        **two(),
        "rank_2.pt": file(("w", dtensor(0).replace(txt("_coordinate_on_dim") + ints(0), txt("_coordinate_on_dim") + NONE))),
    }
    yield "ranks/shards_a_missing_dimension", two(place=[shard(1)])
    yield "ranks/two_placements_for_one_axis", two(place=[shard(), shard()])
    yield "ranks/partial", {"rank_0.pt": file(("w", dtensor(0, place=[partial()])), ("v", dtensor(0, on=(1,), shape=(2,))))}
    yield "ranks/part_is_too_small", two(local=tensor(size=(1,)))
    yield "ranks/part_has_other_dimensions", two(local=tensor(size=(2, 1), stride=(1, 1)))
    yield "ranks/part_leaves_its_storage", two(local=tensor(offset=1))
    yield "ranks/storage_is_missing", {**whole, "rank_1.pt": file(("w", dtensor(1)), data=None)}
    yield "ranks/huge_mesh", {"rank_0.pt": file(("w", dtensor(0, on=(1 << 62, 4), coord=(0, 0), place=[replicate()] * 2)))}
    yield "ranks/huge_shape", {"rank_0.pt": file(("w", dtensor(0, shape=(1 << 62, 8))))}
    yield "ranks/strided_by_nothing", two(place=[strided(factor=0)])
    yield "ranks/tensor_and_object", {**whole, "rank_1.pt": file(("w", num(1)))}
    yield "ranks/flat_shards_of_fsdp1", {
        f"rank_{r}.pt": file(("_flat_param", call(glob("torch.distributed._shard.sharded_tensor.api", "ShardedTensor"))))
        for r in (0, 1)
    }
    pair = list(whole.values())
    rest = {"optim_rank_0.pt": file(("m", dtensor(0))), "optim_rank_1.pt": file(("m", dtensor(1)))}
    step = file(("step", num(1)), data=None)
    yield "ranks/file_of_a_family_is_missing", {"model_rank_0.pt": pair[0], **rest}
    yield "ranks/rest_is_saved_by_one", {"model_rank_0.pt": pair[0], "model_rank_1.pt": pair[1], "extra_state_rank_0.pt": step}
    yield "ranks/logs_beside", {**whole, **{f"log_{n}.pt": step for n in range(3)}}
    yield "ranks/two_worlds", {
        "model_world_size_1_rank_0.pt": file(("w", dtensor(0, (2,), on=(1,)))),
        "model_world_size_2_rank_0.pt": pair[0],
        "model_world_size_2_rank_1.pt": pair[1],
    }
    yield "ranks/number_before_world", {"state.0-of-2.pt": pair[0], "state.1-of-2.pt": pair[1]}
    yield "ranks/number_before_step", {"rank0_step100.pt": pair[0], "rank1_step100.pt": pair[1]}
    plain = [file(("w", dtensor(r)), ("v", tensor(size=(2 - r,)))) for r in (0, 1)]
    yield "ranks/plain_of_other_shape", {f"rank_{r}.pt": plain[r] for r in (0, 1)}
    yield "ranks/sharded_whole", two_sharded()
    yield "ranks/sharded_file_is_missing", {"rank_0.pt": file(("w", sharded(0)))}
    yield "ranks/sharded_overlap", two_sharded(off=(1,))
    yield "ranks/sharded_part_outside", two_sharded(off=(3,))
    yield "ranks/sharded_negative_offset", two_sharded(off=(-1,))
    yield "ranks/sharded_other_size", two_sharded(size=(1,))
    yield "ranks/sharded_other_dimensions", two_sharded(off=(2, 0), size=(2, 1))
    yield "ranks/sharded_rank_outside", two_sharded(rank=2)
    yield "ranks/sharded_other_shape", two_sharded(shape=(5,))
    yield "ranks/sharded_huge_shape", {"rank_0.pt": file(("w", sharded(0, shape=(1 << 62, 8), world=1)))}
    yield "ranks/no_dtensors", {f"step_{n}.pt": value(lst(num(n))) for n in (1, 2)}
    yield "ranks/cut", {**whole, "rank_1.pt": whole["rank_1.pt"][:-9]}
    yield "ranks/text", {**whole, "rank_1.pt": b"hello"}


    index = b'{"weight_map": {"w": "a.bin"}}'
    plain = file(("w", tensor()))
    yield "bins/whole", {"pytorch_model.bin.index.json": index, "a.bin": plain}
    yield "bins/legacy_name_of_a_variant", {"pytorch_model.bin.index.fp16.json": index, "a.bin": plain}
    yield "bins/two_indexes", {"a.bin.index.json": index, "b.bin.index.json": index, "a.bin": plain}
    yield "bins/file_is_missing", {"pytorch_model.bin.index.json": index}
    yield "bins/tensor_is_missing", {"pytorch_model.bin.index.json": index, "a.bin": file(("v", tensor()))}
    yield "bins/object_instead", {"pytorch_model.bin.index.json": index, "a.bin": file(("w", num(1)))}
    yield "bins/parent_folder", {"pytorch_model.bin.index.json": index.replace(b"a.bin", b"../a.bin"), "a.bin": plain}
    yield "bins/index_is_empty", {"pytorch_model.bin.index.json": b"", "a.bin": plain}
    yield "bins/the_same_name_twice", {
        "pytorch_model.bin.index.json": b'{"weight_map": {"w": "a.bin", "x": "b.bin"}}',
        "a.bin": plain,
        "b.bin": file(("w", tensor()), ("x", num(1))),
    }
    yield "bins/cut", {"pytorch_model.bin.index.json": index, "a.bin": plain[:-30]}
    yield "bins/index_is_an_array", {"pytorch_model.bin.index.json": b"[]", "a.bin": plain}
    yield "bins/absolute", {"pytorch_model.bin.index.json": index.replace(b"a.bin", b"/tmp/a.bin"), "a.bin": plain}
    yield "bins/no_torch_file", {"pytorch_model.bin.index.json": index, "a.bin": b"hello"}
    yield "bins/bit_flipped", {"pytorch_model.bin.index.json": index, "a.bin": plain.replace(struct.pack("<2f", 1, 2), struct.pack("<2f", 1, 3))}
    yield "bins/storage_is_missing", {"pytorch_model.bin.index.json": index, "a.bin": file(("w", tensor()), data=None)}
    calls = file(("w", tensor()), ("x", call(glob("os", "system"), txt("touch pwned"))))
    yield "bins/calls_os_system", {"pytorch_model.bin.index.json": index, "a.bin": calls}


def differing():
    """Two ranks that should have the same."""
    same = [replicate()]
    first = file(("w", dtensor(0, (2,), place=same)), ("v", tensor()), ("step", num(1)))
    second = file(("w", dtensor(1, (2,), place=same)), ("v", tensor()), ("step", num(2)), data=struct.pack("<2f", 1, 3))
    return {"rank_0.pt": first, "rank_1.pt": second}


if __name__ == "__main__":  # for tests: writes them into a folder
    for name, raw in differing().items():
        (pathlib.Path(sys.argv[1]) / name).write_bytes(raw)

# SPDX-License-Identifier: Apache-2.0
"""Makes the samples in metadata/ with PyTorch: `.metadata` files as its versions write them.

Run it where torch is installed; the result is the same every time, but for torch_2_15, which 2.15 made. test_dcp_meta.c reads the
samples and knows what is in them.
"""
import os
import pathlib
import pickle
import sys
import tempfile
import types

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor import metadata as shard_metadata
from torch.distributed.checkpoint import metadata as md
from torch.distributed.checkpoint.filesystem import _StorageInfo

HERE = pathlib.Path(__file__).parent / "metadata"
SAVE_ID = "00000000-0000-4000-8000-000000000000"


def write(name, meta, protocol=4):
    data = pickle.dumps(meta, protocol=protocol)
    assert len(data) < 20000, (name, len(data))
    (HERE / (name + ".metadata")).write_bytes(data)


def saved(state, **options):
    """What dcp.save writes, without what changes from run to run."""
    with tempfile.TemporaryDirectory() as folder:
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, **options), no_dist=True)
        with open(os.path.join(folder, ".metadata"), "rb") as f:
            meta = pickle.load(f)
    meta.storage_meta = md.StorageMeta("step_100", SAVE_ID)
    return meta


def tensor_meta(shape, boxes, dtype=torch.float32):
    chunks = [md.ChunkStorageMetadata(torch.Size(o), torch.Size(s)) for o, s in boxes]
    return md.TensorStorageMetadata(md.TensorProperties(dtype=dtype), torch.Size(shape), chunks)


def sharded(ranks, rows=4, name="model.weight"):
    """Row shards; the offsets are shared with the storage keys, as after a save in one process."""
    meta = tensor_meta([ranks * rows, 3], [([r * rows, 0], [rows, 3]) for r in range(ranks)])
    storage = {}
    for r, chunk in enumerate(meta.chunks):
        storage[md.MetadataIndex(name, chunk.offsets, r)] = _StorageInfo(f"__{r}_0.distcp", 0, 1000 + r)
    return md.Metadata({name: meta}, {name: tuple(name.split("."))}, storage,
                       md.StorageMeta(pathlib.PosixPath("/data/run/step_100"), SAVE_ID))


def stand_in(module, name, **fields):
    """An object that pickles as one of a class that this torch does not have any more."""
    home = sys.modules.setdefault(module, types.ModuleType(module))
    if not hasattr(home, name):
        setattr(home, name, type(name, (), {"__module__": module, "__qualname__": name}))
    made = getattr(home, name)()
    made.__dict__.update(fields)
    return made


def old_package():
    """torch 1.13: another package, no storage_meta, transforms or planner_data."""
    pkg = "torch.distributed._shard.checkpoint"
    size = torch.Size([2, 2])
    zero = torch.Size([0, 0])
    props = shard_metadata.TensorProperties(dtype=torch.float64, requires_grad=True)
    chunk = stand_in(pkg + ".metadata", "ChunkStorageMetadata", offsets=zero, sizes=size)
    tensor = stand_in(pkg + ".metadata", "TensorStorageMetadata", properties=props, size=size, chunks=[chunk])
    index = stand_in(pkg + ".metadata", "MetadataIndex", fqn="w", offset=zero, index=0)
    info = stand_in(pkg + ".filesystem", "_StorageInfo", relative_path="__0_0.distcp", offset=0, length=900)
    blob = stand_in(pkg + ".metadata", "BytesStorageMetadata")
    blob_index = stand_in(pkg + ".metadata", "MetadataIndex", fqn="step", offset=None, index=None)
    blob_info = stand_in(pkg + ".filesystem", "_StorageInfo", relative_path="__0_0.distcp", offset=900, length=400)
    return stand_in(pkg + ".metadata", "Metadata", state_dict_metadata={"w": tensor, "step": blob},
                    planner_data=None, storage_data={index: info, blob_index: blob_info})


def megatron():
    """Megatron-Core keeps all ranks' plans in an attribute: objects of classes that reading has no use for."""
    from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
    state = {"model.weight": torch.zeros(8, 3), "step": 100}
    meta = saved(state)
    meta.all_local_plans = [create_default_local_save_plan(state, True)]
    meta.mcore_data = {"model.weight": {"nd_reformulated_orig_global_shape": (8, 3)}}
    return meta


class Path313(pathlib.PurePosixPath):
    """Python 3.13 says pathlib._local.PosixPath, with one argument."""

    def __reduce__(self):
        return (stand_in("pathlib._local", "PosixPath").__class__, ("/data/run/step_100",))


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64,
          torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
          torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
          torch.float8_e8m0fnu, torch.float4_e2m1fn_x2]


def main():
    HERE.mkdir(exist_ok=True)
    torch.manual_seed(0)

    state = {str(d).split(".")[1]: torch.empty(2, 3, dtype=d) for d in DTYPES}
    write("dtypes", saved(state))
    write("nested", saved({"model": {"layers": [{"w": torch.zeros(4, 2)}, {"w": torch.zeros(2)}]},
                           "optim": {"state": {0: {"step": torch.tensor(7.0)}}, "lr": 0.1}}))
    write("bytes", saved({"step": 100, "name": "x" * 300, "rng": torch.zeros(16, dtype=torch.uint8),
                          "options": {"a": [1, 2], "b": (3, "four")}}))
    write("small", saved({"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4), "deep": torch.zeros(1, 1, 2, 1, 3)}))
    try:
        from torch.distributed.checkpoint._extension import ZStandard
        write("zstd", saved({"a": torch.zeros(100), "b": torch.zeros(3), "step": 1}, _extensions=[ZStandard()]))
    except ImportError:
        pass

    write("sharded", sharded(20))
    write("protocol2", sharded(3), protocol=2)
    write("protocol5", sharded(3), protocol=5)

    shared = sharded(3)  # one list of transforms for all rows
    steps = ["zstd"]
    for info in shared.storage_data.values():
        info.transform_descriptors = steps
    write("shared_transforms", shared)

    write("old_package", old_package())
    local = sharded(2)
    local.storage_meta.checkpoint_id = Path313()
    write("python313", local)
    encoding = md._MEM_FORMAT_ENCODING  # 3.11.0 to 3.11.3 write members of enums by name
    encoding.__reduce_ex__ = lambda self, protocol: (getattr, (self.__class__, self._name_))
    write("python3112", sharded(2))
    write("python3112_protocol2", sharded(2), protocol=2)
    del encoding.__reduce_ex__
    extra = sharded(2)  # attributes that torch does not know
    extra.mcore_data = {"model.weight": {"shape": (8, 3)}}
    for meta in extra.state_dict_metadata.values():
        for i, chunk in enumerate(getattr(meta, "chunks", [])):
            object.__setattr__(chunk, "crc32c", i)
    write("extra_attributes", extra)
    extra = saved({"w": torch.zeros(2), "step": 1})
    extra.state_dict_metadata["step"].codec = "pickle"
    write("extra_bytes", extra)

    write("megatron", megatron())
    if hasattr(md.TensorProperties(), "strides"):  # older ones can't make it, and leave it as it is
        write("torch_2_15", saved({"model": {"w": torch.zeros(4, 3), "scalar": torch.tensor(1.0)}, "step": 100}))

    # use_collectives=False: each rank for itself, replicated tensors in every file
    for rank in range(2):
        own = tensor_meta([8, 3], [([4 * rank, 0], [4, 3])])
        both = tensor_meta([5], [([0], [5])], torch.bfloat16)
        file = f"__{rank}_0.distcp"
        storage = {md.MetadataIndex("w", own.chunks[0].offsets, 0): _StorageInfo(file, 0, 1000),
                   md.MetadataIndex("bias", both.chunks[0].offsets, 0): _StorageInfo(file, 1000, 800),
                   md.MetadataIndex("step"): _StorageInfo(file, 1800, 400)}
        tensors = {"w": own, "bias": both, "step": md.BytesStorageMetadata()}
        write(f"rank{rank}", md.Metadata(tensors, {k: (k,) for k in tensors}, storage,
                                         md.StorageMeta("step_100", SAVE_ID[:-1] + str(rank))))


if __name__ == "__main__":
    main()

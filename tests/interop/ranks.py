# SPDX-License-Identifier: Apache-2.0
"""The job of four ranks: writes every sharded checkpoint, waits, then loads what we made of them.

One job for all of it, because starting torch takes longer than the work.
"""

import datetime
import json
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard as LocalShard
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._shards_wrapper import LocalShardsWrapper
from torch.distributed.tensor.placement_types import _StridedShard

import fsdp_job
import layouts
import states
import torch_io
import values

WORLD = 4
FLOATS = [
    s
    for s in layouts.ONE_DIM
    if s.dtype.is_floating_point
    and s.name not in ("scalar", "no_rows", "no_columns", "empty_shards", "one_element")
]


# ---- making distributed tensors -----------------------------------------------------------------


class Meshes:
    def __init__(self):
        self.made = {
            name: DeviceMesh("cpu", torch.tensor(ranks).reshape(shape), mesh_dim_names=axes)
            for name, (shape, axes, ranks) in layouts.MESHES.items()
        }

    def distribute(self, full, mesh, place):
        mesh = self.made[mesh]
        if mesh.get_coordinate() is None:  # this rank holds nothing of it
            local = values.zeros(full.dtype, (0,))
            return DTensor.from_local(
                local,
                mesh,
                placements(place),
                run_check=False,
                shape=full.shape,
                stride=full.stride(),
            )
        return distribute_tensor(full, mesh, placements(place), src_data_rank=None)


def placements(text):
    def one(word):
        if word == "R":
            return Replicate()
        if word[0] == "S":
            return Shard(int(word[1:]))
        dim, split = word[1:].split("/")
        return _StridedShard(int(dim), split_factor=int(split))

    return [one(word) for word in text.split()]


def sharded_state(meshes, specs):
    return {s.name: meshes.distribute(s.full(), s.mesh, s.place) for s in specs}


def box_state(rank, meshes):
    """The same boxes once as LocalShardsWrapper and once as ShardedTensor."""
    state = {}
    for name, (shape, all_boxes) in layouts.BOXES.items():
        full = values.make("wrapped." + name, shape=shape)
        mine = all_boxes[rank]
        parts = [cut(full, box).contiguous() for box in mine]
        wrapper = LocalShardsWrapper(parts, [box[0] for box in mine])
        state["wrapped." + name] = DTensor.from_local(
            wrapper,
            meshes.made["4"],
            [Shard(0)],
            run_check=False,
            shape=full.shape,
            stride=full.stride(),
        )
        full = values.make("sharded." + name, torch.int32, shape)
        shards = [
            LocalShard(
                cut(full, box).contiguous(),
                ShardMetadata(list(box[0]), list(box[1]), f"rank:{rank}/cpu"),
            )
            for box in mine
        ]
        state["sharded." + name] = ShardedTensor._init_from_local_shards(shards, *shape)
    return state


def cut(full, box):
    return full[tuple(slice(o, o + n) for o, n in zip(*box))]


def training_state(meshes):
    """states.training with its tensors sharded by row, its scalars whole."""

    def shard(value):
        if isinstance(value, torch.Tensor):
            return meshes.distribute(value, "4", "S0") if value.dim() else value
        if isinstance(value, dict):
            return {k: shard(v) for k, v in value.items()}
        if isinstance(value, list) and states.has_tensor(value):
            return [shard(v) for v in value]
        return value

    return shard(states.training())


# ---- writing ------------------------------------------------------------------------------------


def jobs(rank, meshes, folder):
    """name -> what saves it."""

    def save(name, state, use_collectives=True, **options):
        writer = dcp.FileSystemWriter(folder / name, **options)
        dcp.save(state, storage_writer=writer, use_collectives=use_collectives)

    def save_hf(name, specs, **options):
        writer = HuggingFaceStorageWriter(str(folder / name), save_distributed=True, **options)
        dcp.save(sharded_state(meshes, specs), storage_writer=writer)

    one, two = layouts.ONE_DIM, layouts.TWO_DIMS
    safe = [s for s in layouts.DTYPES if s.dtype in values.SAFETENSORS_DTYPES]
    return {
        "dtypes": lambda: save("dtypes", sharded_state(meshes, layouts.DTYPES)),
        "one_dim": lambda: save("one_dim", sharded_state(meshes, one)),
        "two_dims": lambda: save("two_dims", sharded_state(meshes, two)),
        "boxes": lambda: save("boxes", box_state(rank, meshes)),
        "training": lambda: save("training", training_state(meshes)),
        "fsdp": lambda: fsdp_job.save(meshes, folder),
        "zstd": lambda: save("zstd", sharded_state(meshes, one), _extensions=[ZStandard()]),
        "rot13": lambda: save("rot13", sharded_state(meshes, one), _extensions=[torch_io.Rot13()]),
        "per_item": lambda: save(
            "per_item", sharded_state(meshes, one), single_file_per_rank=False
        ),
        "threads": lambda: save("threads", sharded_state(meshes, two), thread_count=2),
        "own_metadata": lambda: save(
            "own_metadata", sharded_state(meshes, one), use_collectives=False
        ),
        "hf_parts": lambda: save_hf("hf_parts", one + two),
        "hf_parts_dtypes": lambda: save_hf("hf_parts_dtypes", safe),
        "hf_parts_files": lambda: save_hf(
            "hf_parts_files",
            FLOATS,
            fqn_to_index_mapping={s.name: 1 + i % 2 for i, s in enumerate(FLOATS)},
        ),
        "hf_consolidated": lambda: save_hf("hf_consolidated", FLOATS, enable_consolidation=True),
    }


def write_all(rank, meshes, folder):
    """Saves everything; written.json tells what torch could not."""
    failed = {}
    for name, job in jobs(rank, meshes, folder).items():
        try:
            job()
        except BaseException as e:  # CheckpointException is none of Exception
            failed[name] = f"{type(e).__name__}: {e}"
        dist.barrier()
    if rank == 0:
        (folder / "written.json").write_text(json.dumps(failed))


# ---- loading ------------------------------------------------------------------------------------


def load_problem(meshes, load, group):
    """Loads into templates of another layout and compares this rank's part."""
    wrong = []
    want, state = {}, {}
    for name, (dtype, shape, seed) in load["tensors"].items():
        full = values.make(seed, getattr(torch, dtype), tuple(shape))
        axes = len(layouts.MESHES[load["mesh"]][0])
        place = load["place"] if len(shape) > load["dim"] else " ".join(["R"] * axes)
        want[name] = meshes.distribute(full, load["mesh"], place)
        local = want[name].to_local()
        state[name] = DTensor.from_local(
            values.zeros(local.dtype, local.shape),
            want[name].device_mesh,
            want[name].placements,
            run_check=False,
            shape=full.shape,
            stride=full.stride(),
        )
    reader = (
        HuggingFaceStorageReader(load["path"])
        if load["format"] == "safetensors"
        else torch_io.reader(load["path"])
    )
    dcp.load(state, storage_reader=reader, process_group=group)
    for name in want:
        problem = values.tensor_problem(state[name].to_local(), want[name].to_local())
        if problem:
            wrong.append(f"{name} {problem}")
    return "; ".join(wrong)


def load_all(rank, meshes, folder):
    pair = dist.new_group([0, 1])
    results = {}
    for load in json.loads((folder / "loads.json").read_text()):
        group = pair if load["ranks"] == 2 else None
        if rank < load["ranks"]:
            try:
                results[load["name"]] = (
                    fsdp_job.load_problem(meshes, load["path"])
                    if load["format"] == "fsdp"
                    else load_problem(meshes, load, group)
                )
            except BaseException as e:
                results[load["name"]] = f"{type(e).__name__}: ... {' '.join(str(e).split())[-300:]}"
        dist.barrier()
    (folder / f"loaded.{rank}.json").write_text(json.dumps(results))


def worker(rank, folder, written, copied):
    """What each rank runs; `written` and `copied` are events between the job and run.py."""
    folder = pathlib.Path(folder)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=120),
    )
    meshes = Meshes()
    write_all(rank, meshes, folder)
    written.set() if rank == 0 else None
    if copied.wait(180):
        load_all(rank, meshes, folder)
    dist.destroy_process_group()

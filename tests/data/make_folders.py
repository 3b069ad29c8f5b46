# SPDX-License-Identifier: Apache-2.0
"""Makes golden/folders/: what trainers leave beside DCP and safetensors, small, each with NAME.json that says what is in it.

Run it where torch is installed (2.13 made the committed ones). make_golden.py tells the form of a listing;
test_golden.c reads all of them.
"""

import collections
import datetime
import json
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "interop"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402

import make_matrix as mm  # noqa: E402
import values  # noqa: E402
from make_matrix import WORLD, full  # noqa: E402

FOLDERS = HERE / "golden" / "folders"
MOST_BYTES = 30_000


def expect(name, flat):
    pathlib.Path(f"{name}.json").write_text(values.listing(flat))


# ---- one process --------------------------------------------------------------------------------


class Kept(torch.Tensor):
    pass


def hidden():
    """On ordinary storages, but not pickled as plain tensors; and dicts with keys that are no names."""
    Kept.__module__, Kept.__qualname__ = "somebodys_module", "Kept"
    sys.modules["somebodys_module"] = type(sys)("somebodys_module")
    sys.modules["somebodys_module"].Kept = Kept
    noted = full("noted", 2, 2)
    noted.note = "an attribute"
    parameter = torch.nn.Parameter(full("parameter", 3))
    parameter.note = {"an": "attribute"}
    of_kept = torch.nn.Parameter(full("of_kept", 2).as_subclass(Kept), requires_grad=False)
    state = {
        "noted": noted,
        "parameter": parameter,
        "buffer": torch.nn.Buffer(full("buffer", 2)),
        "kept": full("kept", 4).as_subclass(Kept),
        "of_kept": of_kept,
        "default": collections.defaultdict(list, {"w": full("w", 1), "n": 1}),
        "counter": collections.Counter("aab"),
        "odd": {(1, 2): full("tuple", 1), b"b": full("bytes", 1), 1.5: full("float", 1), None: full("none", 1)},
        "huge": {1 << 70: full("huge", 1), "beside": full("beside", 2)},
        "no_tensors": {None: 1, "a": 2},
    }
    torch.save(state, "hidden.pt")
    flat = {k: state[k].detach().as_subclass(torch.Tensor) for k in ("noted", "parameter", "buffer", "kept", "of_kept")}
    flat |= {"default.w": full("w", 1), "default.n": 1, "counter.a": 2, "counter.b": 1}
    flat |= {"odd.(1, 2)": full("tuple", 1), "odd.b'b'": full("bytes", 1), "odd.1.5": full("float", 1)}
    flat |= {"odd.None": full("none", 1), f"huge.{1 << 70}": full("huge", 1), "huge.beside": full("beside", 2)}
    flat |= {"no_tensors": state["no_tensors"]}
    expect("hidden.pt", flat)


def bins():
    """As transformers wrote models before safetensors; the index knows less than the files have."""
    os.mkdir("bins")
    first = {"a": full("a", 3, 2), "b": full("b", 2, dtype=torch.bfloat16), "extra": full("extra", 1)}
    second = {"c": full("c", 4)}
    torch.save(first, "bins/pytorch_model-00001-of-00002.bin")
    torch.save(second, "bins/pytorch_model-00002-of-00002.bin")
    where = {k: "pytorch_model-00001-of-00002.bin" for k in "ab"} | {"c": "pytorch_model-00002-of-00002.bin"}
    index = {"metadata": {"total_size": 44}, "weight_map": where}
    pathlib.Path("bins/pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2) + "\n")
    expect("bins", first | second)


def module():
    """A whole nn.Module: its weights are inside an object; without a listing."""
    torch.save({"model": mm.model(torch.nn.Linear(3, 2)), "step": 1}, "module.pt")


# ---- every rank saves for itself ----------------------------------------------------------------


def save_rank(folder, state, family=""):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    torch.save(state, folder / f"{family}rank_{dist.get_rank()}.pt")


def rank_meshes():
    """Two axes: replicas, blocks, strided shards, columns, an empty tensor, a rank's own objects."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard

    two = mm.mesh(2, 2, names=("a", "b"))
    cut = {
        "rows": ((5, 3), [Shard(0), Replicate()]),
        "blocks": ((4, 6), [Shard(1), Shard(0)]),
        "twice": ((7,), [Shard(0), Shard(0)]),
        "strided": ((8, 2), [_StridedShard(0, split_factor=2), Shard(0)]),
        "columns": ((2, 5), [Replicate(), Shard(1)]),
        "same": ((3,), [Replicate(), Replicate()]),
        "empty": ((0, 3), [Shard(0), Shard(1)]),
    }
    state = {name: distribute_tensor(full(name, *shape), two, place) for name, (shape, place) in cut.items()}
    state["transposed"] = distribute_tensor(full("transposed", 4, 3).t(), two, [Shard(1), Replicate()])
    state |= {"plain": full("plain", 2), "step": 3}
    save_rank("rank_meshes", state)
    flat = {name: full(name, *shape) for name, (shape, _) in cut.items()}
    return flat | {"transposed": full("transposed", 4, 3).t(), "plain": full("plain", 2), "step": 3}


def rank_families():
    """Model, optimizer and the rest in files of their own, as verl has them; two of the ranks take part."""
    from torch.distributed.device_mesh import DeviceMesh

    on = DeviceMesh("cpu", [0, 1], mesh_dim_names=("dp",))
    if dist.get_rank() > 1:
        return None
    net = mm.sharded(mm.model(torch.nn.Linear(2, 5, bias=False)), on)
    optim = torch.optim.Adam(net.parameters(), lr=0.25)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    save_rank("rank_families", net.state_dict(), "model_world_size_2_")
    optim.step()
    state = optim.state_dict()
    for key in set(state["param_groups"][0]) - {"lr", "params"}:
        del state["param_groups"][0][key]
    save_rank("rank_families", state, "optim_world_size_2_")
    save_rank("rank_families", {"lr_scheduler": {"last_epoch": 1}}, "extra_state_world_size_2_")
    first = state["state"][0]
    return {
        "model.0.weight": full("0.weight", 5, 2),
        "optim.state.0.step": first["step"],
        "optim.state.0.exp_avg": first["exp_avg"].full_tensor(),
        "optim.state.0.exp_avg_sq": first["exp_avg_sq"].full_tensor(),
        "optim.param_groups.0.lr": 0.25,
        "optim.param_groups.0.params": [0],
        "extra_state.lr_scheduler.last_epoch": 1,
    }


def fsdp1(**options):
    """A layer and its optimizer after a step, as FSDP1 hands them out rank by rank."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import StateDictType

    net = FSDP(mm.model(torch.nn.Linear(3, 5, bias=False)), device_id=torch.device("cpu"), **options)
    optim = torch.optim.Adam(net.parameters(), lr=0.25)
    with FSDP.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
        weights = net.state_dict()
    net(torch.arange(1.0, 4).reshape(1, 3)).sum().backward()
    optim.step()
    return weights, optim.state_dict()


def rank_sharded():
    """ShardedTensors: those of FSDP1 without a mesh, one with two parts on each rank, one that rank 0 has alone."""
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor

    def sharded(name, boxes, *size):
        whole = full(name, *size)
        cut = [whole[r : r + m, c : c + n].clone() for r, c, m, n in boxes]
        where = [ShardMetadata([r, c], [m, n], f"rank:{dist.get_rank()}/cpu") for r, c, m, n in boxes]
        return ShardedTensor._init_from_local_shards([Shard(*part) for part in zip(cut, where)], *size)

    rank = dist.get_rank()
    state, _ = fsdp1()
    state["blocks"] = sharded("blocks", [(2 * rank, 0, 2, 1), (2 * rank, 1, 2, 2)], 8, 3)
    state["alone"] = sharded("alone", [(0, 0, 2, 2)] if rank == 0 else [], 2, 2)
    save_rank("rank_sharded", state)
    return {"0.weight": full("0.weight", 5, 3), "blocks": full("blocks", 8, 3), "alone": full("alone", 2, 2)}


def rank_flat():
    """FSDP1 with a mesh of two: the model's tensors are DTensors, but its optimizer has a flat shard on each rank; and what every
    rank has of its own."""
    from torch.distributed.device_mesh import DeviceMesh

    rank = dist.get_rank()
    on = DeviceMesh("cpu", [0, 1])
    if rank > 1:
        return None
    weights, state = fsdp1(device_mesh=on)
    for key in set(state["param_groups"][0]) - {"lr", "params"}:
        del state["param_groups"][0][key]
    save_rank("rank_flat", weights, "model_world_size_2_")
    save_rank("rank_flat", state, "optim_world_size_2_")
    rng = {"cpu": torch.tensor([rank, 1], dtype=torch.uint8), "python": (3, rank)}
    save_rank("rank_flat", {"rng": rng, "epoch": 1}, "extra_state_world_size_2_")
    return {
        "model.0.weight": full("0.weight", 5, 3),
        "optim.state.0.step": state["state"][0]["step"],
        "optim.param_groups.0.lr": 0.25,
        "optim.param_groups.0.params": [0],
        "extra_state.rng.cpu": torch.tensor([0, 1], dtype=torch.uint8),
        "extra_state.rng.python": (3, 0),
        "extra_state.epoch": 1,
    }


RANKS = [rank_meshes, rank_families, rank_sharded, rank_flat]


def worker(rank, meeting):
    os.chdir(FOLDERS)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=60),
    )
    for make in RANKS:
        flat = make()
        if rank == 0:
            expect(make.__name__, flat)
    dist.destroy_process_group()


def main():
    shutil.rmtree(FOLDERS, ignore_errors=True)
    FOLDERS.mkdir(parents=True)
    os.chdir(FOLDERS)
    hidden()
    bins()
    module()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, args=(f"{folder}/meeting",), nprocs=WORLD)
    for cell in sorted(FOLDERS.iterdir()):
        size = sum(f.stat().st_size for f in ([cell] if cell.is_file() else cell.rglob("*")))
        print(f"{size:7} {cell.name}")
        assert size <= MOST_BYTES, cell


if __name__ == "__main__":
    main()

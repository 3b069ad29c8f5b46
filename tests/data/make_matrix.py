# SPDX-License-Identifier: Apache-2.0
"""Makes golden/matrix/torch-X.Y/ with the PyTorch that runs it: the same small checkpoints from every version.

    python -m venv v && v/bin/pip install torch==2.6.0 numpy safetensors zstandard && v/bin/python make_matrix.py

Any CPU will do; versions other than 2.13 bring CUDA packages, so this is run by hand once for each version and never in
CI. Beside each checkpoint CELL lies CELL.json, the listing that test_golden.c knows (make_golden.py tells its form), or,
where this version can't make the cell, CELL.absent with the reason. Ids and dates inside the files differ from run to run.
"""

import datetime
import inspect
import os
import pathlib
import shutil
import sys
import tempfile
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # noqa: E402

import states  # noqa: E402
import values  # noqa: E402

WORLD = 4
VERSION = ".".join(torch.__version__.split(".")[:2])
MATRIX = HERE / "golden" / "matrix" / f"torch-{VERSION}"
MOST_BYTES = 30_000


# ---- what is saved ------------------------------------------------------------------------------


def full(name, *shape, dtype=torch.float32):
    """Ordinary numbers: a model that computes with them must not meet NaN."""
    count = int(torch.Size(shape).numel())
    return (torch.arange(count) % 61 / 4 + len(name)).to(dtype).reshape(shape)


def model(*layers):
    """Uneven on four ranks: 6 and 5 rows."""
    net = torch.nn.Sequential(*(layers or [torch.nn.Linear(4, 6), torch.nn.Linear(6, 5, bias=False)]))
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(full(name, *p.shape))
    return net


def whole(net):
    return {name: p.detach().clone() for name, p in net.state_dict().items()}


PLAIN = {
    "w": full("w", 3, 2),
    "half": full("half", 5, dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "nothing": torch.zeros(0, 3),
    "step": 12,
    "name": "a text",
    "rate": 0.125,
}
NESTED = {
    "model": {"layer": {"w": full("w", 2, 2), "b": full("b", 2)}},
    "list": [full("a", 2), {"deep": full("deep", 1), "n": 3}],
    "tuple": (1, "two", None),
    "flags": {"on": True, "off": False},
    "empty": {},
}
INT_KEYS = {
    "state": {0: {"exp_avg": full("m", 3), "step": torch.tensor(2.0)}, 1: {"exp_avg": full("n", 2)}},
    "param_groups": [{"lr": 0.5, "params": [0, 1]}],
}


# ---- how it is saved ----------------------------------------------------------------------------


def writer(folder, **options):
    return dcp.FileSystemWriter(str(folder), **options)


def save(state, storage, alone=False):
    if "no_dist" in inspect.signature(dcp.save).parameters:
        return dcp.save(state, storage_writer=storage, no_dist=alone)
    if alone:
        return dcp.save_state_dict(state, storage, no_dist=True)
    return dcp.save(state, storage_writer=storage)


def mesh(*shape, names=None):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def fully_shard(net, on):
    try:
        from torch.distributed.fsdp import fully_shard as shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard as shard
    shard(net, mesh=on)
    return net


def sharded(net, on):
    """By FSDP2, or by the same placements where there is none yet."""
    try:
        return fully_shard(net, on)
    except ImportError:
        from torch.distributed._tensor import Shard, distribute_module, distribute_tensor

    def cut(name, module, on):
        for key, p in module.named_parameters(recurse=False):
            module.register_parameter(key, torch.nn.Parameter(distribute_tensor(p.data, on, [Shard(0)])))

    return distribute_module(net, on, cut)


def tensor_parallel(net, on):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(net, on, {"0": ColwiseParallel(), "1": RowwiseParallel()})


# Each cell is made by all ranks and gives the state that the checkpoint stands for.


def fsdp2(folder):
    net = fully_shard(model(), mesh(WORLD, names=("dp",)))
    save(net.state_dict(), writer(folder))
    return whole(model())


def hsdp(folder):
    net = fully_shard(model(), mesh(2, 2, names=("replicate", "shard")))
    save(net.state_dict(), writer(folder))
    return whole(model())


def tp(folder):
    net = tensor_parallel(model(), mesh(WORLD, names=("tp",)))
    save(net.state_dict(), writer(folder))
    return whole(model())


def strided(folder):
    both = mesh(2, 2, names=("dp", "tp"))

    def even():
        return model(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4, bias=False))

    net = fully_shard(tensor_parallel(even(), both["tp"]), both["dp"])
    save(net.state_dict(), writer(folder))
    return whole(even())


def dtensor(folder):
    """Placements by hand, which every version has."""
    try:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    except ImportError:
        from torch.distributed._tensor import Replicate, Shard, distribute_tensor
    two = mesh(2, 2, names=("a", "b"))
    state = {"rows": full("rows", 5, 3), "blocks": full("blocks", 4, 6), "same": full("same", 3)}
    place = {"rows": [Shard(0), Replicate()], "blocks": [Shard(1), Shard(0)], "same": [Replicate(), Replicate()]}
    save({k: distribute_tensor(v, two, place[k]) for k, v in state.items()}, writer(folder))
    return state


def sharded_tensor(folder):
    from torch.distributed._shard import sharded_tensor as st

    rank = dist.get_rank()
    shards = [
        st.Shard.from_tensor_and_offsets(full("st", 8, 3)[first : first + 1].clone(), [first, 0], rank)
        for first in (rank, rank + WORLD)
    ]
    save({"st": st.init_from_local_shards(shards, 8, 3)}, writer(folder))
    return {"st": full("st", 8, 3)}


def optimizer(folder):
    from torch.distributed.checkpoint.state_dict import get_state_dict

    def one_layer():
        return model(torch.nn.Linear(2, 5, bias=False))

    def stepped(net):
        optim = torch.optim.Adam(net.parameters(), lr=0.25)
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        optim.step()
        net, optim = get_state_dict(net, optim)
        for group in optim["param_groups"]:  # each value is a file of its own inside
            for key in set(group) - {"params", "lr", "betas"}:
                del group[key]
        return net, optim

    net, optim = stepped(sharded(one_layer(), mesh(WORLD, names=("dp",))))
    save({"model": net, "optim": optim}, writer(folder))
    net, optim = stepped(one_layer())
    return {"model": net, "optim": optim}


def zstd(folder):
    from torch.distributed.checkpoint._extension import ZStandard

    save(PLAIN, writer(folder, _extensions=[ZStandard()]))
    return PLAIN


def hf(folder):
    try:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter as Writer
    except ImportError:
        from torch.distributed.checkpoint import HuggingFaceStorageWriter as Writer
    state = {"a": full("a", 4, 3), "b": full("b", 2)}
    save(state, Writer(str(folder), fqn_to_index_mapping={"a": 1, "b": 2}))
    return state


def plain(folder):
    save(PLAIN, writer(folder))
    return PLAIN


def nested(folder):
    save(NESTED, writer(folder))
    return NESTED


def int_keys(folder):
    save(INT_KEYS, writer(folder))
    return INT_KEYS


def rank_files(folder):
    """What each rank of a trainer writes for itself: verl's names."""
    net = sharded(model(), mesh(WORLD, names=("dp",)))
    rank = dist.get_rank()
    folder.mkdir(exist_ok=True)
    torch.save(net.state_dict(), folder / f"model_world_size_{WORLD}_rank_{rank}.pt")
    return whole(model())


def torch_save(file):
    if dist.get_rank() == 0:
        torch.save(NESTED, file)
    return NESTED


def torch_legacy(file):
    """As before torch 1.6: no archive."""
    if dist.get_rank() == 0:
        torch.save(PLAIN, file, _use_new_zipfile_serialization=False)
    return PLAIN


CELLS = [fsdp2, hsdp, tp, strided, dtensor, sharded_tensor, optimizer, zstd, hf, plain, nested, int_keys, rank_files]
FILES = {"torch_save.pt": torch_save, "torch_legacy.pt": torch_legacy}


# ---- making them --------------------------------------------------------------------------------


def reason():
    kind, error, _ = sys.exc_info()
    text = str(error).split("\n")[0].split(". ")[0].split(" (/")[0]  # no path of the module
    return f"{kind.__name__}: {text}"


def attempt(rank, name, make):
    """All ranks or none; the listing is rank 0's."""
    target = pathlib.Path(name)  # relative, so that no path of this machine gets into the files
    state = why = None
    try:
        state = make(target)
    except Exception:
        why = reason()
        if os.environ.get("VERBOSE"):
            traceback.print_exc()
    every = [None] * WORLD
    dist.all_gather_object(every, why)
    why = next((w for w in every if w), None)
    if rank != 0:
        return
    if why:
        shutil.rmtree(target, ignore_errors=True)
        target.unlink(missing_ok=True)
        pathlib.Path(f"{name}.absent").write_text(why + "\n")
    else:
        flat = states.flatten_as_we_do(state) if name.endswith(".pt") else flatten_state_dict(state)[0]
        pathlib.Path(f"{name}.json").write_text(values.listing(flat))


def worker(rank, meeting):
    os.chdir(MATRIX)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=60),
    )
    for make in CELLS:
        attempt(rank, make.__name__, make)
    for name, make in FILES.items():
        attempt(rank, name, make)
    dist.destroy_process_group()


def main():
    shutil.rmtree(MATRIX, ignore_errors=True)
    MATRIX.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, args=(f"{folder}/meeting",), nprocs=WORLD)
    for cell in sorted(MATRIX.iterdir()):
        size = sum(f.stat().st_size for f in ([cell] if cell.is_file() else cell.rglob("*")))
        print(f"{size:7} {cell.name} {cell.read_text().strip() if cell.suffix == '.absent' else ''}")
        assert size <= MOST_BYTES, cell


if __name__ == "__main__":
    main()

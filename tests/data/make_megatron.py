# SPDX-License-Identifier: Apache-2.0
"""Makes golden/megatron: folders that Megatron-Core wrote with dist_checkpointing.save on two CPU ranks, and their listings.

    python make_megatron.py NAME    with a version of megatron-core that can write it

torch_dist         0.14: a prepended layer axis, rows and columns, objects of ranks, and Adam's moments as flat ranges
                   (fully_sharded_model_space), whose true shapes stand in mcore_data
fully_reshardable  0.16: moments in their true shapes, integrity.json as later versions write it
dp_reshardable     0.16: moments in flat buckets without names

A listing has the bytes of the tensors as the script made them, not as anything read them.
"""
import argparse
import hashlib
import json
import pathlib
import shutil
import sys

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HERE = pathlib.Path(__file__).parent / "golden" / "megatron"
RANKS = 2
LAYERS = 2


def whole(name, *shape):
    """The tensor of a name, the same on every rank."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def line(name, tensor):
    data = bytes(tensor.contiguous().view(torch.uint8).flatten().tolist()) if tensor.numel() else b""
    return json.dumps({"name": name, "dtype": str(tensor.dtype).split(".")[1], "shape": list(tensor.shape),
                       "bytes": data.hex()})


def model(rank):
    from megatron.core.dist_checkpointing import ShardedTensor
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    state = {}
    for layer in range(LAYERS):
        w = whole("decoder.layers.mlp.linear_fc1.weight", LAYERS, 8, 3)[layer]
        state[f"fc1.{layer}"] = ShardedTensor.from_rank_offsets(
            "decoder.layers.mlp.linear_fc1.weight", w.chunk(RANKS, 0)[rank].clone(), (0, layer, LAYERS),
            (1, rank, RANKS), prepend_axis_num=1)
    columns = whole("decoder.final.weight", 4, 6)
    state["final"] = ShardedTensor.from_rank_offsets("decoder.final.weight", columns.chunk(RANKS, 1)[rank].clone(),
                                                     (1, rank, RANKS))
    state["norm"] = ShardedTensor.from_rank_offsets("decoder.norm.weight", whole("decoder.norm.weight", 5),
                                                    replica_id=rank)
    state["rng"] = ShardedObject("rng_state", [{"seed": 1234 + rank}], (RANKS,), (rank,), replica_id=0)
    return state


def model_lines():
    tensors = {"decoder.layers.mlp.linear_fc1.weight": (LAYERS, 8, 3), "decoder.final.weight": (4, 6),
               "decoder.norm.weight": (5,)}
    lines = [line(name, whole(name, *shape)) for name, shape in tensors.items()]
    for rank in range(RANKS):
        lines.append(json.dumps({"name": f"rng_state/shard_{rank}_{RANKS}", "value": [[{"seed": 1234 + rank}]]}))
    return lines


def flat(rank):
    """Moments of two tensor-parallel blocks of columns; each rank has a range of each block that ends inside a row."""
    from megatron.core.dist_checkpointing import ShardedTensor
    state = {}
    for kind in "exp_avg", "exp_avg_sq":
        name = f"optimizer.state.{kind}.decoder.final.weight"
        a, b = [(0, 4), (4, 12)][rank]
        for i, block in enumerate(whole(name, 4, 6).chunk(2, 1)):
            state[f"{kind}.{i}"] = ShardedTensor.from_rank_offsets_flat(
                name, block.flatten()[a:b].clone(), (4, 3), (1, i, 2), flattened_range=slice(a, b))
    name = "optimizer.state.exp_avg.decoder.norm.weight"
    a, b = [(0, 2), (2, 5)][rank]
    state["norm"] = ShardedTensor.from_rank_offsets_flat(name, whole(name, 5)[a:b].clone(), (5,),
                                                         flattened_range=slice(a, b))
    return state


def flat_lines():
    tensors = {"optimizer.state.exp_avg.decoder.final.weight": (4, 6),
               "optimizer.state.exp_avg_sq.decoder.final.weight": (4, 6),
               "optimizer.state.exp_avg.decoder.norm.weight": (5,)}
    return [line(name, whole(name, *shape)) for name, shape in tensors.items()]


def shaped(rank):
    from megatron.core.dist_checkpointing import ShardedTensor
    name = "optimizer.state.exp_avg.decoder.final.weight"
    return {"m": ShardedTensor.from_rank_offsets(name, whole(name, 4, 6).chunk(RANKS, 1)[rank].clone(),
                                                 (1, rank, RANKS))}


BUCKET = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg"


def bucket(rank):
    from megatron.core.dist_checkpointing import ShardedTensor
    return {"b": ShardedTensor.from_rank_offsets(BUCKET, whole("bucket", 8).chunk(RANKS)[rank].clone(),
                                                 (0, rank, RANKS))}


CASES = {
    "torch_dist": ("fully_sharded_model_space", flat, flat_lines),
    "fully_reshardable": ("fully_reshardable", shaped,
                          lambda: [line(n, whole(n, 4, 6)) for n in ["optimizer.state.exp_avg.decoder.final.weight"]]),
    "dp_reshardable": ("dp_reshardable", bucket, lambda: [line(BUCKET, whole("bucket", 8))]),
}


def save(rank, name, port):
    torch.cuda.synchronize = lambda *_: None  # there is no GPU
    torch.cuda.current_device = lambda: "cpu"
    numpy.product = numpy.prod  # which older versions call
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    from megatron.core import dist_checkpointing
    kind, optimizer, _ = CASES[name]
    state = {"model": model(rank), "optim": optimizer(rank), "iteration": 7, "checkpoint_version": 3.0,
             "args": argparse.Namespace(hidden_size=6, bf16=True),
             "optimizer": {"param_groups": [{"lr": 0.5, "params": [0, 1]}], "param_state_sharding_type": kind}}
    extra = {}
    if name != "torch_dist":
        extra["content_metadata"] = {"distrib_optim_sharding_type": kind}
    dist_checkpointing.save(state, str(HERE / name), **extra)
    dist.barrier()
    dist.destroy_process_group()


def write_integrity(folder):
    """As Megatron-LM's main writes it, which no release does yet."""
    files = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir())}
    (folder / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": files}, indent=2))


def main():
    name = sys.argv[1]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mp.spawn(save, (name, 29517), nprocs=RANKS)
    if name == "fully_reshardable":
        write_integrity(folder)
    lines = model_lines() + CASES[name][2]()
    (HERE / f"{name}.json").write_text("".join(l + "\n" for l in sorted(lines, key=lambda l: l.encode())))


if __name__ == "__main__":
    main()

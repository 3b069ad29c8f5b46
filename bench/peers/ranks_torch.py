#!/usr/bin/env python3
"""PyTorch's side of ranks.hf: `make PATH` writes 2 GiB of bfloat16 as the files of four FSDP2 ranks, as verl names them;
`convert PATH` loads those of SOURCE, concatenates the shards and saves one safetensors file.

ranks_torch.py SOURCE answers each line with the seconds that it took, or "error: ...".
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

RANKS, TENSORS, N = 4, 64, 4096


def make(path):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.makedirs(path)
    for r in range(RANKS):
        dist.init_process_group("fake", rank=r, world_size=RANKS, store=FakeStore())
        mesh = DeviceMesh("cpu", torch.arange(RANKS), mesh_dim_names=("fsdp",))
        torch.manual_seed(r)
        state = {}
        for i in range(TENSORS):
            local = torch.randint(-999, 999, (N // RANKS, N), dtype=torch.int16).view(torch.bfloat16)
            state[f"model.layers.{i}.weight"] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
        name = f"model_world_size_{RANKS}_rank_{r}.pt"
        torch.save(state, os.path.join(path, name + ".tmp"))
        os.rename(os.path.join(path, name + ".tmp"), os.path.join(path, name))
        dist.destroy_process_group()


def convert(path):
    from safetensors.torch import save_file

    start = time.monotonic()
    files = [os.path.join(sys.argv[1], f"model_world_size_{RANKS}_rank_{r}.pt") for r in range(RANKS)]
    parts = [torch.load(f, map_location="cpu", weights_only=False) for f in files]
    whole = {}
    for name in list(parts[0]):
        shards = [p.pop(name) for p in parts]
        whole[name] = torch.cat([s._local_tensor for s in shards], dim=shards[0].placements[0].dim)
    os.makedirs(path)
    save_file(whole, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    return time.monotonic() - start


def main():
    for line in sys.stdin:
        command, path = line.rstrip("\n").split(" ", 1)
        try:
            print(convert(path) if command == "convert" else make(path) or 0.0, flush=True)
        except Exception as e:  # the harness prints it
            print("error:", " ".join(str(e).split()), flush=True)


main()

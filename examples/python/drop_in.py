# SPDX-License-Identifier: Apache-2.0
"""Code that knows only torch.distributed.checkpoint, as accelerate's and many trainers', and the line that puts this library
behind it:

    torchrun --nproc-per-node 2 drop_in.py FOLDER"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.fsdp import fully_shard

import reshard
import reshard.torch

reshard.torch.install()  # the line; RESHARD_TORCH=1 in the environment does without


def save(model, folder):
    """As accelerate does it."""
    os.makedirs(folder, exist_ok=True)
    dcp.save({"model": model.state_dict()}, storage_writer=dcp.FileSystemWriter(folder), planner=DefaultSavePlanner())


def load(model, folder):
    """As accelerate does it."""
    state = {"model": model.state_dict()}
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder), planner=DefaultLoadPlanner())
    model.load_state_dict(state["model"])


def main():
    dist.init_process_group("gloo")
    folder = os.path.join(sys.argv[1], "pytorch_model_fsdp_0")
    torch.manual_seed(dist.get_rank())
    model, other = (fully_shard(torch.nn.Linear(8, 8)) for _ in range(2))
    save(model, folder)
    load(other, folder)
    same = all(torch.equal(a.to_local(), b.to_local()) for a, b in zip(model.parameters(), other.parameters()))
    if dist.get_rank() == 0:
        print("same:", same)
        print("checksums:", reshard.open(folder, "raw").has_checksums)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

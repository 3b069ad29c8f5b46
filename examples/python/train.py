# SPDX-License-Identifier: Apache-2.0
"""Trains under FSDP2 and tensor parallelism, saves in the background, resumes from the latest checkpoint, on any number of
processes and any mesh:

    torchrun --nproc-per-node 4 train.py RUN --mesh 2x2 --until 6
    torchrun --nproc-per-node 2 train.py RUN --mesh 1x2 --until 12     # goes on with the same losses"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import reshard.torch

BATCH = 8


class Block(torch.nn.Module):
    """A residual MLP."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Trainer:
    """What a checkpoint holds: model and optimizer, asked for their state dicts when it is saved or loaded."""

    def __init__(self, mesh):
        torch.manual_seed(1)  # the same initial weights on every mesh
        self.model = torch.nn.Sequential(*(Block(16) for _ in range(3)))
        for block in self.model:
            parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(self.model, mesh=mesh["dp"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, foreach=False)

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def step(self, number, mesh):
        """One step on the batch of that number, of which each data-parallel rank takes its rows."""
        batch = torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(number))
        rows = batch.chunk(mesh["dp"].size())[mesh["dp"].get_local_rank()]
        loss = (self.model(rows) - rows.roll(1, 1)).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss = loss.detach()
        dist.all_reduce(loss)
        return loss.item() / dist.get_world_size()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("run")
    arguments.add_argument("--mesh", default="2x2")
    arguments.add_argument("--until", type=int, default=12)
    arguments.add_argument("--every", type=int, default=3)
    given = arguments.parse_args()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", tuple(map(int, given.mesh.split("x"))), mesh_dim_names=("dp", "tp"))

    state = {"trainer": Trainer(mesh), "step": 0}
    series, saving = reshard.torch.Series(given.run), None
    latest = series.latest()
    if latest is not None:
        reshard.torch.load(state, series.path(latest))
    while state["step"] < given.until:
        state["step"] += 1
        loss = state["trainer"].step(state["step"], mesh)
        if dist.get_rank() == 0:
            print(f"step {state['step']} loss {loss:.5f}", flush=True)
        if state["step"] % given.every == 0:
            saving = reshard.torch.async_save(state, series.path(state["step"]))  # waits for the previous one
            series.prune(last=2)
    if saving:
        saving.result()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

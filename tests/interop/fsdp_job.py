# SPDX-License-Identifier: Apache-2.0
"""A model under FSDP2 and tensor parallelism with its optimizer, through torch's state dicts."""

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torch_io
import values


def trainer(meshes, seed):
    """Model and optimizer with state, the same for the same seed on every rank."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    mesh = meshes.made["2x2"]
    parallelize_module(model, mesh["b"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh["a"])
    fully_shard(model, mesh=mesh["a"])
    return model, torch.optim.AdamW(model.parameters(), lr=0.01 * (seed + 1))


def state_of(model, optimizer):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"app": {"model": model_state, "optim": optimizer_state}, "step": 5}


def filled(state):
    """Moments start as zeros, which would prove nothing. Replicas stay equal."""
    for i, moments in enumerate(state["app"]["optim"]["state"].values()):
        for name, value in moments.items():
            if isinstance(value, DTensor):
                local = value.to_local()
                first = 1000 * i + 100 * len(name) + 10 * value.device_mesh.get_coordinate()[0]
                local.copy_(torch.arange(first, first + local.numel()).reshape(local.shape))
    return state


def flat(value, name=""):
    if isinstance(value, dict):
        return {
            k: v
            for key, item in value.items()
            for k, v in flat(item, f"{name}.{key}" if name else key).items()
        }
    return {name: value}


def save(meshes, folder):
    """Writes the checkpoint, and what every tensor is when it is put together."""
    state = filled(state_of(*trainer(meshes, 1)))
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder / "fsdp"))
    whole = {
        k: v.full_tensor() if isinstance(v, DTensor) else v
        for k, v in flat(state).items()
        if isinstance(v, torch.Tensor)
    }
    if torch.distributed.get_rank() == 0:
        torch.save(whole, folder / "fsdp.whole.pt")


def load_problem(meshes, path):
    """Another trainer takes the state of the first from the checkpoint and has its parameters."""
    want = filled(state_of(*trainer(meshes, 1)))
    model, optimizer = trainer(meshes, 2)
    state = state_of(model, optimizer)
    dcp.load(state, storage_reader=torch_io.reader(path))
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["app"]["model"],
        optim_state_dict=state["app"]["optim"],
    )
    got, want = flat(state_of(model, optimizer)), flat(want)
    for name, tensor in want.items():
        if isinstance(tensor, DTensor):
            problem = values.tensor_problem(got[name].to_local(), tensor.to_local())
        elif isinstance(tensor, torch.Tensor):
            problem = values.tensor_problem(got[name], tensor)
        else:
            problem = None if got[name] == tensor else f"is {got[name]!r}, not {tensor!r}"
        if problem:
            return f"{name} {problem}"
    return None

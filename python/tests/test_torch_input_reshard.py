# SPDX-License-Identifier: Apache-2.0
"""Gradients of modules whose activations are kept in parts are those of modules that keep them whole."""

import sys
import unittest

from rank_pool import shared
from support import needs_torch


def _module():
    import torch

    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.LayerNorm(40), torch.nn.Linear(40, 8), torch.nn.Softmax(-1))


def _gradients(module, steps=2):
    import torch

    result = []
    for step in range(steps):
        torch.manual_seed(step)
        x = torch.randn(6, 5, 24, requires_grad=True)
        module.zero_grad()
        module(x.transpose(0, 1)).square().sum().backward()
        result += [x.grad, *[p.grad.clone() for p in module.parameters()]]
    return result


def _same(rank):
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    import reshard.torch

    mesh = init_device_mesh("cpu", (4,))
    plain = _gradients(_module())
    for dim in (0, 1, -1):
        wrapped = reshard.torch.input_reshard(_module(), mesh, dim)
        assert all(torch.equal(a, b) for a, b in zip(plain, _gradients(wrapped)))
    assert reshard.torch.comm_of().stashes.held == 0


def _parts(rank):
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    import reshard.torch

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["tp"]
    module = reshard.torch.input_reshard(torch.nn.Linear(64, 64), mesh, 0)
    torch.manual_seed(0)
    x = torch.randn(128, 64, requires_grad=True)
    y = module(x.clone())
    keeper = reshard.torch._comm.comm_of_ranks(tuple(mesh.mesh.tolist())).stashes
    assert keeper.held == x.numel() * 4 // 2, keeper.held  # the input, and not the weight
    y.sum().backward(retain_graph=True)
    assert keeper.held == 0
    y.sum().backward()  # asks for it again
    assert torch.equal(x.grad, 2 * torch.ones(128, 64) @ module.weight.detach())


def _dropped(rank):
    """Graphs that are dropped without a backward give their room back."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    import reshard.torch
    from reshard.torch import _input_reshard

    reshard.torch.comm_of().close()  # with the stashes of other tests
    before, _input_reshard._BUDGET = _input_reshard._BUDGET, 1 << 16
    mesh = init_device_mesh("cpu", (4,))
    module = reshard.torch.input_reshard(torch.nn.Linear(64, 64), mesh, 0)
    for _ in range(50):
        module(torch.ones(128, 64))
    keeper = reshard.torch.comm_of().stashes
    assert len(keeper._stashes) == 1, len(keeper._stashes)
    kept = [module(torch.full((128, 64), float(i))) for i in range(20)]  # more than one stash holds
    assert len(keeper._stashes) > 1
    for i, y in reversed(list(enumerate(kept))):
        module.zero_grad()
        y.sum().backward()
        assert torch.equal(module.weight.grad, torch.full((64, 64), 128.0 * i))
    reshard.torch.comm_of().close()
    _input_reshard._BUDGET = before


def _dtensor(rank):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    import reshard.torch

    mesh = init_device_mesh("cpu", (4,))

    def gradients(wrap):
        torch.manual_seed(3)
        module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
        module = parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        module = reshard.torch.input_reshard(module, mesh, 0) if wrap else module
        x = torch.randn(8, 16, requires_grad=True)
        module(x).sum().backward()
        return [x.grad, *[p.grad.to_local() for p in module.parameters()]]

    assert all(torch.equal(a, b) for a, b in zip(gradients(False), gradients(True)))


def _trained(rank, shape, optimizer, steps, dim):
    """Weights, gradients and outputs of a two-layer MLP after some steps, column by row on the last axis, batches spread over
    the first; the module's input alone is kept, and the forward pass run again. With and without input_reshard."""
    import functools
    import warnings

    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.utils.checkpoint import checkpoint

    import reshard.torch

    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")[-len(shape) :])

    def train(wrap):
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 12))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        model = reshard.torch.input_reshard(model, mesh["tp"], dim) if wrap else model
        if "dp" in mesh.mesh_dim_names:
            fully_shard(model, mesh=mesh["dp"])
        optim = optimizer(model.parameters())
        seen = []
        for step in range(steps):
            torch.manual_seed(step + (mesh["dp"].get_local_rank() if len(shape) > 1 else 0))
            y = checkpoint(functools.partial(model), torch.rand(16, 10), use_reentrant=False)
            y.sum().backward()
            seen += [y.detach(), *[p.grad.to_local().clone() for p in model.parameters()]]
            optim.step()
            optim.zero_grad()
        return seen + [p.detach().to_local() for p in model.parameters()]

    return all(torch.equal(a, b) for a, b in zip(train(False), train(True), strict=True))


def _recomputed(rank):
    import functools

    import torch

    assert _trained(rank, (4,), functools.partial(torch.optim.SGD, lr=0.25), 1, 0)


def _in_two_dimensions(rank, dim):
    import functools

    import torch

    assert _trained(rank, (2, 2), functools.partial(torch.optim.Adam, lr=0.1, foreach=False), 5, dim)


@needs_torch
class InputReshard(unittest.TestCase):
    def test_gradients_are_bit_for_bit_the_same(self):
        shared(4).run(_same)

    def test_each_rank_keeps_its_part(self):
        shared(4).run(_parts)

    def test_dropped_graphs_give_their_room_back(self):
        shared(4).run(_dropped)

    def test_of_a_module_of_dtensors(self):
        shared(4).run(_dtensor)

    def test_an_sgd_step_with_recomputed_activations(self):
        shared(4).run(_recomputed)

    def test_five_adam_steps_in_two_dimensions(self):
        for dim in (0, None):
            with self.subTest(dim=dim):
                shared(4).run(_in_two_dimensions, dim)

    def test_without_a_dimension_nothing_happens(self):
        import torch

        import reshard.torch

        module = torch.nn.Linear(2, 2)
        self.assertIs(reshard.torch.input_reshard(module, None), module)
        self.assertFalse(module._forward_pre_hooks)


if __name__ == "__main__":
    sys.exit(unittest.main())

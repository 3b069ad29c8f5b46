# SPDX-License-Identifier: Apache-2.0
"""redistribute against the whole tensor, for every pair of placements."""

import itertools
import sys
import unittest

from rank_pool import shared
from support import needs_torch


def _whole(shape, dtype):
    import torch

    n = 1
    for size in shape:
        n *= size
    return (torch.arange(n) % 120).reshape(shape).to(dtype)


def _placements(ndim):
    from torch.distributed.tensor import Partial, Replicate, Shard

    return [Replicate(), *[Shard(d) for d in range(ndim)], Partial("sum")]


def _part(whole, mesh, placements):
    """This rank's part of a tensor. distribute_tensor is no oracle for meshes whose ranks do not ascend."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if mesh.get_coordinate() is None:
        return whole.new_empty(0)
    kept = [Replicate() if p.is_partial() else p for p in placements]
    shape, offset = compute_local_shape_and_global_offset(whole.shape, mesh, kept)
    return whole[tuple(slice(o, o + n) for o, n in zip(offset, shape))].contiguous()


def _source(whole, mesh, placements):
    """A DTensor with this value."""
    import torch
    from torch.distributed.tensor import DTensor

    local, coordinate = _part(whole, mesh, placements), mesh.get_coordinate()
    for axis, p in enumerate(placements):
        if p.is_partial() and coordinate is not None and coordinate[axis]:  # all but the first contribute nothing
            local = torch.zeros_like(local)
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


def _same(result, whole, mesh, placements):
    import torch

    expected = _part(whole, mesh, placements)
    assert tuple(result.placements) == tuple(placements), (result.placements, placements)
    assert result.shape == whole.shape and result.dtype == whole.dtype
    assert result.to_local().shape == expected.shape, (result.to_local().shape, expected.shape)
    assert torch.equal(result.to_local(), expected), (placements, result.to_local(), expected)


def _pairs(rank, mesh_shape, shape, dtype, direct):
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    import reshard.torch

    mesh = init_device_mesh("cpu", mesh_shape)
    whole = _whole(shape, getattr(torch, dtype))
    choices = list(itertools.product(_placements(len(shape)), repeat=len(mesh_shape)))
    for source in choices:
        x = _source(whole, mesh, source)
        for target in choices:
            if any(p.is_partial() for p in target):
                continue
            _same(reshard.torch.redistribute(x, placements=list(target), direct=direct), whole, mesh, target)


def _reductions(rank, dtype):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    import reshard.torch

    mesh = init_device_mesh("cpu", (4,))
    parts = [((torch.arange(35) * (r + 3)) % 7 + 1).reshape(5, 7).to(getattr(torch, dtype)) for r in range(4)]
    stack = torch.stack([p.double() for p in parts])
    for op, value in (("sum", stack.sum(0)), ("avg", stack.mean(0)), ("min", stack.amin(0)), ("max", stack.amax(0)), ("product", stack.prod(0))):
        x = DTensor.from_local(parts[rank], mesh, [Partial(op)], run_check=False)
        for target in ([Replicate()], [Shard(0)], [Shard(1)]):
            _same(reshard.torch.redistribute(x, placements=target), value.to(parts[0].dtype), mesh, target)


def _meshes(rank):
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    import reshard.torch

    whole = _whole((9, 10), torch.bfloat16)
    meshes = [DeviceMesh("cpu", m) for m in ([0, 1, 2, 3], [[0, 1], [2, 3]], [[3, 1], [0, 2]], [0, 1], [2, 3], [1])]
    for a, b in itertools.product(meshes, repeat=2):
        x = _source(whole, a, [Shard(0)] * a.ndim)
        for target in ([Shard(1)] * b.ndim, [Replicate()] * b.ndim):
            _same(reshard.torch.redistribute(x, b, target), whole, b, target)
    grid = meshes[1]
    strided = [_StridedShard(0, split_factor=2), Shard(0)]
    x = reshard.torch.redistribute(_source(whole, meshes[0], [Shard(1)]), grid, strided)
    _same(reshard.torch.redistribute(x, meshes[0], [Shard(0)]), whole, meshes[0], [Shard(0)])
    assert torch.equal(x.full_tensor(), whole)


def _subset(rank):
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard

    import reshard.torch

    mesh = DeviceMesh("cpu", [1, 3])
    whole = _whole((6, 4), torch.float32)
    x = _source(whole, mesh, [Shard(0)])
    if rank in (1, 3):  # the others need not come
        _same(reshard.torch.redistribute(x, placements=[Shard(1)]), whole, mesh, [Shard(1)])


def _gradients(rank):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    import reshard.torch

    mesh = init_device_mesh("cpu", (4,))
    whole, factor = _whole((6, 8), torch.float64), _whole((6, 8), torch.float64) + 1
    for source, target in itertools.product((Shard(0), Shard(1), Replicate()), repeat=2):
        x = distribute_tensor(whole, mesh, [source]).requires_grad_()
        y = reshard.torch.redistribute(x, placements=[target])
        (y * distribute_tensor(factor, mesh, [target])).sum().backward()
        assert tuple(x.grad.placements) == (source,)
        assert torch.equal(x.grad.full_tensor(), factor)


def _plans(rank):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard

    import reshard.torch

    mesh = init_device_mesh("cpu", (4,))
    x = _source(_whole((4, 44), torch.float32), mesh, [Shard(0)])
    reshard.torch.redistribute(x, placements=[Shard(1)])
    before = dict(reshard.torch.comm_of().plans)
    for _ in range(5):
        reshard.torch.redistribute(x, placements=[Shard(1)])
    assert reshard.torch.comm_of().plans == before


@needs_torch
class Redistribute(unittest.TestCase):
    def test_every_pair_of_placements_on_one_axis(self):
        shared(4).run(_pairs, (4,), (9, 6), "float32", True)

    def test_every_pair_of_placements_on_two_axes(self):
        shared(4).run(_pairs, (2, 2), (7, 6), "float32", True)

    def test_by_messages_and_with_empty_shards(self):
        shared(4).run(_pairs, (4,), (2, 5, 3), "bfloat16", False)

    def test_reductions(self):
        for dtype in ("float32", "float64", "int64"):
            with self.subTest(dtype=dtype):
                shared(4).run(_reductions, dtype)

    def test_other_meshes_and_ranks(self):
        shared(4).run(_meshes)

    def test_only_the_ranks_of_the_meshes_take_part(self):
        shared(4).run(_subset)

    def test_gradients_go_back(self):
        shared(4).run(_gradients)

    def test_plans_are_kept(self):
        shared(4).run(_plans)

    def test_what_is_no_dtensor_is_refused(self):
        import torch

        import reshard
        import reshard.torch

        with self.assertRaisesRegex(reshard.InvalidError, "not a Tensor"):
            reshard.torch.redistribute(torch.zeros(3))


if __name__ == "__main__":
    sys.exit(unittest.main())

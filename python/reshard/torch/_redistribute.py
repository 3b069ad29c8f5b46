# SPDX-License-Identifier: Apache-2.0
"""DTensors from one layout to another: any mesh, any placements, each byte straight from its holder to its new owner."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from .. import _arrays, _core
from .._errors import InvalidError, UnsupportedError
from ._comm import comm_of_ranks

_REDUCE = {"sum": 1, "avg": 2, "min": 3, "max": 4, "product": 5}
_PLANS = 256  # kept per comm


def redistribute(dtensor, device_mesh=None, placements=None, *, direct=True):
    """The same tensor as a DTensor with other placements, on this or another mesh; for CPU tensors of every dtype.

    All ranks of both meshes call it, and no others have to. On a rank outside the source mesh `dtensor` is what torch
    gives such a rank, one without elements; outside the target mesh the result is one. device_mesh: None is the tensor's
    own. placements: Shard, _StridedShard, Replicate, Partial; None replicates on all axes. direct: False uses messages
    only, even where ranks can read each other's memory.

    Differentiable: the gradient goes back the same way. From Partial only sums are."""
    if not isinstance(dtensor, DTensor):
        raise InvalidError(f"a DTensor is redistributed, not a {type(dtensor).__qualname__}")
    mesh = device_mesh if device_mesh is not None else dtensor.device_mesh
    placements = _normal(placements if placements is not None else [Replicate()] * mesh.ndim, mesh, dtensor.ndim)
    if torch.is_grad_enabled() and dtensor.requires_grad:
        return _Redistribute.apply(dtensor, mesh, placements, direct)
    return _move(dtensor, mesh, placements, direct)


class _Redistribute(torch.autograd.Function):
    # pylint: disable=abstract-method,arguments-differ
    @staticmethod
    def forward(ctx, dtensor, mesh, placements, direct):
        for p in dtensor.placements:
            if p.is_partial() and p.reduce_op != "sum":
                raise UnsupportedError(f"{p} has no gradient here: detach the tensor first")
        ctx.mesh, ctx.direct = dtensor.device_mesh, direct
        ctx.placements = tuple(Replicate() if p.is_partial() else p for p in dtensor.placements)
        return _move(dtensor, mesh, placements, direct)

    @staticmethod
    def backward(ctx, grad):
        return _move(grad, ctx.mesh, ctx.placements, ctx.direct), None, None, None


def _normal(placements, mesh, ndim):
    """A tuple of placements without negative dimensions."""
    if len(placements) != mesh.ndim:
        raise InvalidError(f"{len(placements)} placements are given for a mesh of {mesh.ndim} axes")
    return tuple(_positive(p, ndim) for p in placements)


def _positive(p, ndim):
    if isinstance(p, _StridedShard) and p.dim < 0:
        return _StridedShard(p.dim + ndim, split_factor=p.split_factor)
    return Shard(p.dim + ndim) if isinstance(p, Shard) and p.dim < 0 else p


def _move(dtensor, mesh, placements, direct):
    source = dtensor._spec
    local = dtensor._local_tensor
    if local.device.type != "cpu":
        raise UnsupportedError(f"only CPU tensors are redistributed, this one is on {local.device}")
    shape = tuple(dtensor.shape)
    ranks = _ranks_of(source.mesh)
    ranks = tuple(sorted({*ranks, *_ranks_of(mesh)}))
    if dist.get_rank() not in ranks:
        return _result(torch.empty(0, dtype=dtensor.dtype), dtensor, mesh, placements)
    comm = comm_of_ranks(ranks)
    key = (source.mesh, source.placements, mesh, placements, shape, dtensor.dtype)
    known = comm.plans.get(key)
    if known is None:
        known = _plan(comm, ranks, key, source)
        while len(comm.plans) >= _PLANS:
            comm.plans.pop(next(iter(comm.plans)))
        comm.plans[key] = known
    plan, here = known
    out = torch.empty(here, dtype=dtensor.dtype)
    plan.run(comm._core, _packed(local.detach()), _arrays.view(out, True), direct)
    return _result(out, dtensor, mesh, placements)


def _packed(local):
    """A View of a tensor in row-major order, as the core expects it."""
    local = local.resolve_conj().resolve_neg()
    return _arrays.view(local if local.is_contiguous() else local.contiguous(), False)


def _plan(comm, ranks, key, spec):
    """A Plan, and the shape of the result on this rank."""
    source_mesh, source, mesh, target, shape, dtype = key
    if getattr(spec, "shard_order", None) not in (None, DTensorSpec.compute_default_shard_order(source)):
        raise UnsupportedError("the tensor has an order of shards of its own, which is not supported")
    place = {rank: i for i, rank in enumerate(ranks)}
    plan = _core.plan(comm.rank, *(_layout(comm, m, p, place, shape, dtype) for m, p in ((source_mesh, source), (mesh, target))))
    if mesh.get_coordinate() is None:
        return plan, (0,)
    return plan, tuple(compute_local_shape_and_global_offset(shape, mesh, target)[0])


def _layout(comm, mesh, placements, place, shape, dtype):
    ranks = tuple(place[rank] for rank in _ranks_of(mesh))
    return _core.Layout.of_mesh(tuple(mesh.shape), ranks, tuple(_placement(p) for p in placements), str(dtype)[len("torch.") :], shape, comm.rank)


def _placement(p):
    if isinstance(p, _StridedShard):
        return 3, p.dim, p.split_factor
    if isinstance(p, Shard):
        return 2, p.dim, 0
    if isinstance(p, Replicate):
        return 1, 0, 0
    if type(p) is Partial and p.reduce_op in _REDUCE:  # pylint: disable=unidiomatic-typecheck
        return 4, 0, 0, _REDUCE[p.reduce_op]
    raise UnsupportedError(f"the placement {p} is not supported")


def _ranks_of(mesh):
    return mesh.mesh.flatten().tolist()


def _result(local, like, mesh, placements):
    meta = TensorMeta(like.shape, _row_major(like.shape), like.dtype)
    return DTensor(local, DTensorSpec(mesh, placements, tensor_meta=meta), requires_grad=False)


def _row_major(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))

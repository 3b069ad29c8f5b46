# SPDX-License-Identifier: Apache-2.0
"""Activations of tensor-parallel modules, kept in parts between forward and backward."""

import weakref

import torch
from torch.distributed.tensor import DTensor

from .. import _arrays, _core
from ._comm import comm_of_ranks

_BUDGET = 64 << 20  # bytes on a rank of the first stash; each further one has twice as many
_HANDLES = 4096  # tensors in a stash


def input_reshard(module, tp_device_mesh, input_reshard_dim=None):
    """Registers hooks by which the ranks of `tp_device_mesh` keep what `module` saves for its backward in parts, one on each
    rank, and bring it back when backward needs it. As in torch.distributed.tensor.parallel.input_reshard, plain tensors
    and replicated DTensors are taken to be equal on these ranks; other DTensors, parameters and buffers stay as they are.

    input_reshard_dim: None does nothing. What is kept is cut into equal parts whatever the dimension."""
    if input_reshard_dim is None:
        return module
    entered = []

    def before(_module, _inputs):
        keeper = _Keeper.of(tp_device_mesh)
        own = {_storage(t) for t in (*module.parameters(), *module.buffers())}
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: _pack(keeper, own, x), _unpack)
        hooks.__enter__()  # pylint: disable=unnecessary-dunder-call
        entered.append(hooks)

    def after(_module, _inputs, _output):
        entered.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after, always_call=True)
    return module


def _storage(x):
    return (x._local_tensor if isinstance(x, DTensor) else x).untyped_storage().data_ptr()


def _pack(keeper, own, x):
    """What autograd keeps in place of x."""
    if _storage(x) in own:
        return x
    if isinstance(x, DTensor):
        if not all(p.is_replicate() for p in x.placements) or x._local_tensor.numel() < keeper.size:
            return x
        return _Kept(keeper, x._local_tensor, x._spec)
    if x.numel() < keeper.size or x.device.type != "cpu":
        return x
    return _Kept(keeper, x, None)


def _unpack(x):
    return x.restore() if isinstance(x, _Kept) else x


class _Kept:
    """A tensor in a stash. Backward may ask for it twice: after the first time it is kept here."""

    def __init__(self, keeper, x, spec):
        order = sorted(range(x.dim()), key=lambda d: -x.stride(d))
        flat = x.detach().permute(order)
        if not flat.is_contiguous():
            order, flat = list(range(x.dim())), x.detach()
        self._shape, self._order, self._dtype = flat.shape, order, x.dtype
        self._spec, self._whole = spec, None
        self._place = keeper.save(flat.contiguous().reshape(-1), self)

    def restore(self):
        if self._whole is None:
            flat = torch.empty(self._shape.numel(), dtype=self._dtype)
            stash, place = self._place
            stash.take(place, flat)
            back = [self._order.index(d) for d in range(len(self._order))]
            self._whole = flat.reshape(self._shape).permute(back)
        if self._spec is None:
            return self._whole
        return DTensor(self._whole, self._spec, requires_grad=False)


class _Stash:
    """One stash, and what is in it in the order of saving, which is the same on all ranks."""

    def __init__(self, comm, budget):
        self.budget, self._inside = budget, {}
        self._core = _core.stash(comm._core, budget, _HANDLES)

    def save(self, flat, owner):
        """The tensor's place, or None if there is no room on any rank."""
        place = self._core.save(_arrays.view(flat, False))
        if place is not None:
            self._inside[place] = (weakref.ref(owner), flat.numel(), flat.dtype)
        return place

    def take(self, place, flat):
        self._core.take(*place, _arrays.view(flat, True))
        del self._inside[place]

    def dead(self):
        """For each tensor whether nobody can ask for it any more."""
        return [owner() is None for owner, _, _ in self._inside.values()]

    def drop(self, flags):
        """Takes the tensors out whose flag is set; all ranks call it with the same."""
        for place, flag in zip(list(self._inside), flags):
            if flag:
                _, n, dtype = self._inside[place]
                self.take(place, torch.empty(n, dtype=dtype))

    def close(self):
        self._core.close()

    @property
    def held(self):
        return self._core.held


class _Keeper:
    """The stashes of a comm. All ranks save the same tensors in the same order, so that they run out of room together."""

    @staticmethod
    def of(mesh):
        comm = comm_of_ranks(tuple(sorted(mesh.mesh.flatten().tolist())))
        if comm.stashes is None:
            comm.stashes = _Keeper(comm)
        return comm.stashes

    def __init__(self, comm):
        self._comm, self._stashes, self.size = weakref.proxy(comm), [], comm.size

    def save(self, flat, owner):
        """(stash, place)"""
        place = self._stashes[-1].save(flat, owner) if self._stashes else None
        if place is None:
            self._reclaim()
            place = self._stashes[-1].save(flat, owner) if self._stashes else None
        if place is None:
            self._grow(flat.numel() * flat.element_size())
            place = self._stashes[-1].save(flat, owner)
        return self._stashes[-1], place

    def _reclaim(self):
        """Room of tensors whose graph was dropped without a backward: when is up to Python, so the ranks compare."""
        for stash in self._stashes:
            mine = torch.tensor(stash.dead(), dtype=torch.uint8)
            if len(mine):
                stash.drop(self._on_all(mine).tolist())

    def _on_all(self, flags):
        """The flags that are set on all ranks."""
        comm, out = self._comm, torch.empty_like(flags)
        mesh = (comm.size,), list(range(comm.size))
        plan = _core.plan(comm.rank, "uint8", tuple(flags.shape), (*mesh, [(4, 0, 0, 3)]), (*mesh, [(1, 0, 0, 0)]))
        plan.run(comm._core, _arrays.view(flags, False), _arrays.view(out, True), True)
        return out

    def _grow(self, nbytes):
        part = nbytes // self.size + 4096
        budget = max(_BUDGET, 4 * part, 2 * self._stashes[-1].budget if self._stashes else 0)
        self._stashes.append(_Stash(self._comm, budget))

    @property
    def held(self):
        """Bytes that this rank keeps."""
        return sum(stash.held for stash in self._stashes)

    def close(self):
        for stash in self._stashes:
            stash.close()
        self._stashes = []

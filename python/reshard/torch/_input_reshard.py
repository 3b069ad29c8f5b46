# SPDX-License-Identifier: Apache-2.0
"""Activations of tensor-parallel modules, kept in parts between forward and backward."""

import ctypes
import weakref
import zlib

import torch
from torch.distributed.tensor import DTensor

from .. import _arrays, _core
from .._errors import MismatchError
from ._comm import comm_of_ranks

_BUDGET = 64 << 20  # bytes on a rank of the first stash; each further one has twice as many
_HANDLES = 4096  # tensors in a stash


def input_reshard(module, tp_device_mesh, input_reshard_dim=None):
    """Registers hooks by which the ranks of `tp_device_mesh` keep what `module` saves for its backward in parts, one on each
    rank, and bring it back when backward needs it: the signature and effect of
    torch.distributed.tensor.parallel.input_reshard. That is for tensors that are equal on these ranks, which the first
    forward finds out by comparing checksums; others, parameters and buffers stay as they are.

    input_reshard_dim: None does nothing. What is kept is cut into equal parts whatever the dimension."""
    if input_reshard_dim is None:
        return module
    entered, equal = [], {}

    def before(_module, _inputs):
        packer = _Packer(module, _Keeper.of(tp_device_mesh), equal)
        hooks = torch.autograd.graph.saved_tensors_hooks(packer.pack, _unpack)
        hooks.__enter__()  # pylint: disable=unnecessary-dunder-call
        entered.append(hooks)

    def after(_module, _inputs, _output):
        entered.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after, always_call=True)
    return module


def _storage(x):
    return (x._local_tensor if isinstance(x, DTensor) else x).untyped_storage().data_ptr()


class _Packer:
    """Packs what one forward saves. `equal` keeps for the nth tensor of a forward whether the ranks have the same."""

    def __init__(self, module, keeper, equal):
        self._keeper, self._equal, self._n = keeper, equal, 0
        self._own = {_storage(t) for t in (*module.parameters(), *module.buffers())}

    def pack(self, x):
        """What autograd keeps in place of x."""
        spec = x._spec if isinstance(x, DTensor) else None
        if _storage(x) in self._own or (spec and not all(p.is_replicate() for p in spec.placements)):
            return x
        local = x._local_tensor if spec else x
        if local.device.type != "cpu":
            return x
        flat, order = _flat(local.detach())
        sum_ = _checksum(flat)
        self._n += 1
        key = self._n, x.dtype, x.dim()
        if key not in self._equal:
            self._equal[key] = self._keeper.same(sum_ ^ hash(tuple(x.shape)) & 0xFFFFFFFF)
        if not self._equal[key] or flat.numel() < self._keeper.size:
            return x
        return _Kept(self._keeper, flat, order, sum_, spec)


def _flat(x):
    """The tensor with its dimensions in the order of memory, packed, and that order."""
    order = sorted(range(x.dim()), key=lambda d: -x.stride(d))
    flat = x.permute(order)
    return (flat, order) if flat.is_contiguous() else (x.contiguous(), list(range(x.dim())))


def _checksum(x):
    return zlib.crc32((ctypes.c_ubyte * (x.numel() * x.element_size())).from_address(x.data_ptr())) if x.numel() else 0


def _unpack(x):
    return x.restore() if isinstance(x, _Kept) else x


class _Kept:
    """A tensor in a stash. Backward may ask for it twice: after the first time it is kept here."""

    def __init__(self, keeper, flat, order, checksum, spec):
        self._shape, self._order, self._dtype = flat.shape, order, flat.dtype
        self._checksum, self._spec, self._whole = checksum, spec, None
        self._place = keeper.save(flat.reshape(-1), self)

    def restore(self):
        if self._whole is None:
            flat = torch.empty(self._shape.numel(), dtype=self._dtype)
            stash, place = self._place
            stash.take(place, flat)
            if _checksum(flat) != self._checksum:
                raise MismatchError(f"a saved tensor of shape {tuple(self._shape)} was not the same on all ranks, but was in the first forward")
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
                stash.drop(self._least(mine).tolist())

    def same(self, number):
        """Whether all ranks have the same number."""
        least, most = self._least(torch.tensor([number, -number])).tolist()
        return least == -most

    def _least(self, values):
        """The smallest of all ranks, for each value."""
        comm, out = self._comm, torch.empty_like(values)
        mesh = (comm.size,), tuple(range(comm.size))
        kind = str(values.dtype)[len("torch.") :], tuple(values.shape), comm.rank
        plan = _core.plan(comm.rank, *(_core.Layout.of_mesh(*mesh, (p,), *kind) for p in ((4, 0, 0, 3), (1, 0, 0))))
        plan.run(comm._core, _arrays.view(values, False), _arrays.view(out, True), True)
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

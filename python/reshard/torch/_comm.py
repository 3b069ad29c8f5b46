# SPDX-License-Identifier: Apache-2.0
"""A comm for the ranks of a process group. It never sends anything over that group: ranks of one machine use Unix sockets
and read each other's memory; several machines are joined by UCX, or by a gloo group of its own (_link.py)."""

import atexit
import datetime
import os
import time
import weakref

import torch.distributed as dist

from .. import _core
from .._errors import Error, InvalidError, UnsupportedError

_SLICE = 0.5  # seconds between looks at signals while a key is waited for
_comms = {}  # name of a group -> Comm
_made = {}  # (name, ranks) -> comms made so far: the same number on all of these ranks


class Comm:
    """Ranks that work together in calls of this package. Such calls are made by all of them, in the same order, and by one
    thread at a time. A rank that ends breaks it: the calls of the others then name that rank."""

    def __init__(self, core, link=None):
        self._core, self._link = core, link
        self.rank, self.size = core.rank, core.size
        self.plans = {}  # what redistribute keeps with it,
        self.stashes = None  # and input_reshard

    def split(self, ranks):
        """A comm of these ranks, in this order; all ranks call it, with the list that they are in, or with an empty one,
        which gives None. Other threads may use it at the same time."""
        core = self._core.split(list(ranks))
        return Comm(core) if core else None

    def barrier(self):
        """Waits for all ranks."""
        self._core.barrier()

    def set_timeout(self, seconds):
        """How long a rank may be silent before the others give up on it; the same on all ranks. 300 s at first."""
        self._core.set_timeout(seconds)

    def abort(self, why):
        """Makes the calls of all ranks fail from now on."""
        self._core.abort(why)

    def close(self):
        """Frees it, after the comms split from it. All ranks call it if input_reshard was used."""
        if self.stashes is not None and not self.closed:
            self.stashes.close()
        self._end()

    def _end(self):
        """Waits for no rank, so that a program can end; what input_reshard kept stays until it does."""
        self.plans.clear()
        self.stashes = None
        self._core.close()
        if self._link:
            self._link.close()

    @property
    def closed(self):
        """close() was called, or its process group was destroyed."""
        return self._core.closed

    def __repr__(self):
        return f"Comm(rank={self.rank}, size={self.size})"


def comm_of(process_group=None, *, timeout=300.0, near=True):
    """The comm of a process group's ranks; None is the default group. All of its ranks call it; the first call makes the
    comm, later ones return it. It is closed with the process group and when the program ends.

    timeout: seconds until all ranks have come, and that a rank may be silent later. near: False treats every rank as if it
    were on a machine of its own."""
    if not dist.is_initialized():
        raise InvalidError("torch.distributed is not initialized: a comm is made of the ranks of a process group")
    group = process_group if process_group is not None else dist.group.WORLD
    return _comm_of(group.group_name, tuple(dist.get_process_group_ranks(group)), group, timeout, near)


def comm_of_ranks(ranks):
    """The comm of these global ranks, which ascend and call it. It is closed with the default group."""
    world = dist.group.WORLD
    if len(ranks) == dist.get_world_size():
        return comm_of(world)
    return _comm_of("ranks-" + "-".join(map(str, ranks)), ranks, world, 300.0, True)


def comm_for_reading(ranks):
    """Another one of these ranks, which no call of the program's uses."""
    return _comm_of("reading-" + "-".join(map(str, ranks)), ranks, dist.group.WORLD, 300.0, True)


def _comm_of(name, ranks, group, timeout, near):
    """`group` is whose end ends the comm."""
    comm = _comms.get(name)
    if comm is not None and not comm.closed and comm.group() is group:
        return comm
    if comm is not None:
        comm._end()
    comm = _comms[name] = _make(name, ranks, timeout, near)
    comm.group = weakref.ref(group)
    weakref.finalize(group, comm._end).atexit = False
    return comm


def _make(name, ranks, timeout, near):
    number = _made[name, ranks] = _made.get((name, ranks), 0) + 1
    store = dist.PrefixStore(f"reshard/{name}/{number}", dist.distributed_c10d._get_default_store())
    rank = ranks.index(dist.get_rank())
    links = []

    def dial(far):
        if _all_have_ucx(store, rank, len(ranks), timeout):
            raise _TakeUcx
        from ._link import Link

        links.append(Link(store, rank, len(ranks), far, timeout))
        return links[0].sockets()

    try:
        core = _meet(store, rank, len(ranks), dial, near, timeout)
    except _TakeUcx:  # on all ranks
        core = _meet(dist.PrefixStore("over", store), rank, len(ranks), "ucx", near, timeout)
    except BaseException:
        for link in links:
            link.close()
        raise
    core.set_timeout(timeout)
    return Comm(core, links[0] if links else None)


def _meet(store, rank, size, dial, near, timeout):
    return _core.meet(rank, size, store.set, lambda key, left: _get(store, key, left), dial, near, timeout)


class _TakeUcx(Exception):
    """Machines are joined by UCX."""


def _all_have_ucx(store, rank, size, timeout):
    """Whether UCX joins machines; all ranks ask, and rank 0 answers. RESHARD_COMM=gloo on any rank:
    it does not; ucx: it must."""
    wanted = os.environ.get("RESHARD_COMM") or "auto"
    if wanted not in ("auto", "gloo", "ucx"):
        raise InvalidError(f"RESHARD_COMM is {wanted!r}: it may be auto, gloo or ucx")
    store.set(f"ucx/{rank}", f"{wanted} " + ("RESHARD_COMM=gloo" if wanted == "gloo" else _why_no_ucx()))
    if rank == 0:
        said = [_get(store, f"ucx/{r}", timeout).decode().split(" ", 1) for r in range(size)]
        reason = next((f"rank {r}: {reason}" for r, (_, reason) in enumerate(said) if reason), "")
        store.set("ucx", ("must " if any(kind == "ucx" for kind, _ in said) else "may ") + reason)
    kind, reason = _get(store, "ucx", timeout).decode().split(" ", 1)
    if reason and kind == "must":
        raise UnsupportedError(f"RESHARD_COMM is ucx, but not all ranks can use it: {reason}")
    return not reason


def _why_no_ucx():
    """Empty if a comm of this rank alone works."""
    kept = {}
    try:
        _core.meet(0, 1, kept.__setitem__, lambda key, left: kept[key], "ucx", True, 10.0).close()
    except Error as e:
        return str(e)
    return ""


def _get(store, key, left):
    """The bytes under a key. Looks at signals between waits."""
    end = time.monotonic() + left
    while True:
        piece = min(_SLICE, max(end - time.monotonic(), 0.001))
        begin = time.monotonic()
        try:
            store.wait([key], datetime.timedelta(seconds=piece))
            return store.get(key)
        except RuntimeError:  # a timeout has no class of its own in all of torch's stores
            if time.monotonic() - begin < piece * 0.9:
                raise
        if time.monotonic() >= end:
            raise TimeoutError(key)


def _close_all():
    for comm in list(_comms.values()):
        comm._end()
    _comms.clear()


def _forget_in_child():
    """A forked child has copies of the sockets, which it closes; the comms are the parent's."""
    comms = list(_comms.values())
    _comms.clear()
    for comm in comms:
        comm._link = None
        comm._end()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_in_child)

# SPDX-License-Identifier: Apache-2.0
"""The ranks of a process group, as this library sees them."""

import os
import weakref

import torch.distributed as dist

from .._errors import Error, InvalidError, MismatchError


_behind = weakref.WeakKeyDictionary()  # Comm of a group -> the one of its saves in the background


class Group:
    """comm: a core Comm, None for one process; rank, size: in the group; of: numbers in the group by torch's global
    ones, None if they are the same."""

    __slots__ = ("comm", "rank", "size", "of")

    def __init__(self, process_group, no_dist, background=False):
        self.comm, self.rank, self.size, self.of = None, 0, 1, None
        if not dist.is_available() or not dist.is_initialized():
            return
        if no_dist:
            self.rank = dist.get_rank()
            return
        self.rank, self.size = dist.get_rank(process_group), dist.get_world_size(process_group)
        if self.rank < 0:
            raise InvalidError(f"rank {dist.get_rank()} is not in the process group")
        if self.size < dist.get_world_size():
            self.of = {r: i for i, r in enumerate(dist.get_process_group_ranks(process_group))}
        if self.size > 1:
            self.comm = _comm(process_group, background)

    def ranks(self, mesh):
        """The ranks of a DeviceMesh, row by row."""
        found = mesh.mesh.flatten().tolist()
        if self.of is None:
            return tuple(found)
        try:
            return tuple(self.of[r] for r in found)
        except KeyError as e:
            raise InvalidError(f"its mesh has rank {e.args[0]}, which is not in the process group") from None


def _comm(process_group, background):
    """A save in the background has a comm of its own, beside which others can run."""
    from ._comm import comm_of

    comm = comm_of(process_group)
    if not background:
        return comm._core
    own = _behind.get(comm)
    if own is None:
        own = _behind[comm] = comm.split(range(comm.size))
    return own._core


def run(group, make, use, loading):
    """use(make()), where a rank whose make() failed lets all ranks fail with its message."""
    try:
        state = make()
    except BaseException as e:
        if group.comm is not None:
            _tell(group, e, use, loading)
        raise
    return use(state)


def _tell(group, problem, use, loading):
    from .. import _core

    state = _core.State(group.rank, loading)
    code = problem.code if isinstance(problem, Error) and not isinstance(problem, MismatchError) else InvalidError.code
    state.fail(code, f"{type(problem).__name__}: {problem}")
    try:
        use(state)
    except Error:
        pass  # what it was told


def path_of(path, checkpoint_id):
    """Both names of the argument, ours and torch's."""
    if (path is None) == (checkpoint_id is None):
        raise InvalidError("give the checkpoint's path, once")
    return os.fspath(path if path is not None else checkpoint_id)

# SPDX-License-Identifier: Apache-2.0
"""StorageReaders of one machine that read for each other. The ranks' plans carry what each would read in short runs to the
coordinator, whose answer tells every rank with whom it reads; nothing of it is needed for a load to be right."""

import math
import os
import threading

import torch.distributed as dist

from .._errors import CommError, Error, InvalidError, MismatchError, RankTimeoutError
from . import _comm

PAYS_FROM = 64 << 20  # bytes that a machine's ranks want in short runs
_SHORT = 64 << 10  # bytes of a run
_lock = threading.Lock()  # one load at a time uses a comm
_given_up = set()  # ranks whose comm broke


def _machine():
    """The same on ranks that reach each other's memory."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            boot = f.read()
        return boot, os.stat("/proc/self/ns/ipc").st_ino, os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return None


def note(items, state):
    """What a rank tells the coordinator of its plan; None: it reads alone. `state`: the metadata of the tensors."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    short = 0
    for item in items:
        lengths, found = item.lengths, state.get(item.storage_index.fqn)
        size = getattr(found, "size", None)
        if len(lengths) > 1 and size and lengths[-1] < size[-1]:
            width = found.properties.dtype.itemsize
            if lengths[-1] * width < _SHORT:
                short += math.prod(lengths) * width
    return dist.get_rank(), os.getpid(), _machine(), short


def partners(notes):
    """For each rank those it reads with, itself included; or None."""
    machines = {}
    for one in notes:
        if one is not None and one[2] is not None:
            machines.setdefault(one[2], []).append(one)
    answer = {}
    for ranks in machines.values():
        pays = sum(one[3] for one in ranks) >= PAYS_FROM
        if pays and len(ranks) > 1 and len({one[1] for one in ranks}) == len(ranks):  # not threads
            group = tuple(sorted(one[0] for one in ranks))
            answer.update(dict.fromkeys(group, group))
    return [one and answer.get(one[0]) for one in notes]


class Together:
    """One load of this rank with its partners, if it has some. All of them either read together once, or decline; a rank that
    declines makes the others read alone."""

    def __init__(self, ranks):
        self._comm = None
        if not ranks or ranks in _given_up or ranks == (dist.get_rank(),):
            return
        _lock.acquire()
        try:
            self._comm = _comm.comm_for_reading(ranks)
        except Error:
            self._give_up(ranks)
        except BaseException:
            _lock.release()
            raise
        self._ranks = ranks

    def _give_up(self, ranks):
        _given_up.add(ranks)
        self._comm = None
        _lock.release()

    def read(self, core, wanted, options):
        """True if it has been read; False: read it alone."""
        if self._comm is None:
            return False
        try:
            core.read(wanted, False, *options, None, self._comm._core)
            return True
        except (CommError, RankTimeoutError, KeyboardInterrupt) as e:
            self._give_up(self._ranks)
            if isinstance(e, KeyboardInterrupt):
                raise
        except (InvalidError, MismatchError):  # another rank declines, or has another checkpoint open
            pass
        finally:
            self._end()
        return False

    def decline(self):
        """Unless it has been read."""
        if self._comm is not None:
            try:
                self._comm.barrier()  # another call than that of the others, if they read
            except (CommError, RankTimeoutError):
                self._give_up(self._ranks)
            except Error:
                pass
            finally:
                self._end()

    def _end(self):
        if self._comm is not None:
            self._comm = None
            _lock.release()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.decline()

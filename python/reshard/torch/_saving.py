# SPDX-License-Identifier: Apache-2.0
"""save and async_save: every rank describes what it holds, the library decides who writes what."""

import io
import sys
import weakref

import torch

from .. import _core
from .._errors import MismatchError
from .._reading import choice, progress_of
from .._saving import _FORMATS, _STAGES, _pick, _remember
from ._describe import Describer
from ._group import Group, path_of, run
from ._tree import asked, leaves


_running = weakref.WeakValueDictionary()  # Comm -> the save in the background that uses it
_copied = weakref.WeakKeyDictionary()  # Comm -> State of the last save staged by copy, which keeps the memory for the next


class _Alone:
    """Stands for the comm of a process without ranks."""


_alone = _Alone()


def _pickled(x):
    out = io.BytesIO()
    torch.save(x, out)
    return out.getvalue()


def _add_value(state, path, x):
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.generic):
        x = x.item()
    if not state.value(path, x):
        kind = type(x)
        state.object(path, f"{kind.__module__}.{kind.__qualname__}", _pickled(x))


def _state(group, found, apart):
    d = Describer(group, False, apart)
    for path, _, _, x in found:
        if not d.tensor(path, x):
            _add_value(d.state, path, x)
    return d.state


def _save(group, state_dict, path, stage, uneven_keys, options):
    """Ranks that all hold the same tensors agree on that by comparing digests. If they differ, and may, they tell each
    other what they have. path, options: functions, so that a rank whose arguments are wrong lets all ranks fail."""
    where, how, found = "", {}, None  # a rank without a path fails all
    copies, comm = stage == _STAGES["copy"], group.comm or _alone

    def make(apart):
        nonlocal where, how, found
        if found is None:
            how = options()
            where = path()
            found = leaves(asked(state_dict, state_dict))
        state = _state(group, found, apart)
        if copies and comm in _copied:
            state.restage(_copied.pop(comm))
        return state

    def use(state, apart):
        if copies:
            _copied[comm] = state
        return _core.save(where, state, comm=group.comm, stage=stage, uneven=apart, **how)

    tries = [False, True] if uneven_keys is None and group.comm is not None else [bool(uneven_keys)]
    for apart in tries:
        try:
            return run(group, lambda: make(apart), lambda state: use(state, apart), False)
        except MismatchError:
            if apart is tries[-1]:
                raise
    raise AssertionError("not reached")


def _options(format, overwrite, compress, sync, checksum, threads, max_memory, check_equal, progress):
    return {
        "format": _pick(_FORMATS, format, "format"),
        "overwrite": overwrite,
        "transform": f"stream.{compress}" if compress else None,
        "sync": choice(sync, "sync"),
        "checksum": choice(checksum, "checksum"),
        "threads": threads,
        "max_memory": max_memory,
        "check_equal": check_equal,
        "progress": progress_of(progress),
    }


def save(
    state_dict,
    path=None,
    *,
    checkpoint_id=None,
    process_group=None,
    no_dist=False,
    overwrite=True,
    format="dcp",  # pylint: disable=redefined-builtin
    uneven_keys=None,
    check_equal=False,
    compress=None,
    sync=None,
    checksum=None,
    threads=0,
    max_memory=0,
    progress=None,
):
    """Saves what the ranks of a process group hold as one checkpoint, all of it or nothing, durable on return.

    state_dict: as torch.distributed.checkpoint.save takes it. path, checkpoint_id: the folder. process_group: all ranks by
    default; without torch.distributed, or with no_dist, this process alone. overwrite: replace a checkpoint of that name.
    uneven_keys: whether ranks may hold different keys; None finds out, False makes that an error. check_equal: compare
    replicas first. The rest is as in reshard.save."""
    _save(
        Group(process_group, no_dist),
        state_dict,
        lambda: path_of(path, checkpoint_id),
        0,
        uneven_keys,
        lambda: _options(format, overwrite, compress, sync, checksum, threads, max_memory, check_equal, progress),
    )


def async_save(
    state_dict,
    path=None,
    *,
    checkpoint_id=None,
    process_group=None,
    no_dist=False,
    stage="fork",
    overwrite=True,
    format="dcp",  # pylint: disable=redefined-builtin
    uneven_keys=None,
    check_equal=False,
    compress=None,
    sync=None,
    checksum=None,
    threads=0,
    max_memory=0,
):
    """save() in the background: returns an AsyncSave as soon as the tensors may change again.

    stage: how they are preserved: "fork" lets a forked process write them, and falls back to "copy" for memory that
    processes share and wherever else it can't. The rest is as in save()."""
    group = Group(process_group, no_dist, background=True)
    before = _running.get(group.comm)
    if before is not None:
        before.exception()  # one at a time; it still reports its own result
    core = _save(
        group,
        state_dict,
        lambda: path_of(path, checkpoint_id),
        _pick(_STAGES, stage, "stage"),
        uneven_keys,
        lambda: _options(format, overwrite, compress, sync, checksum, threads, max_memory, check_equal, None),
    )
    saving = AsyncSave(core, path_of(path, checkpoint_id))
    if group.comm is not None:
        _running[group.comm] = saving
    return saving


class AsyncSave:
    """A save in the background, used like a concurrent.futures.Future. It continues without further calls; dropping it, or
    leaving the program, waits for it."""

    def __init__(self, core, path):
        self._core, self.path = core, path
        self._ended, self._problem = False, None
        _remember(core)

    def _wait(self, seconds):
        if not self._ended:
            try:
                self._ended = self._core.wait(seconds, None)
            except KeyboardInterrupt:
                raise
            except Exception as e:  # pylint: disable=broad-except
                self._ended, self._problem = True, e
        return self._ended

    def result(self, timeout=None):
        """Waits until the checkpoint is published; raises what went wrong, or TimeoutError after `timeout` seconds."""
        if not self._wait(-1.0 if timeout is None else float(timeout)):
            raise TimeoutError(f"{self.path!r} is not saved yet")
        if self._problem is not None:
            raise self._problem

    def exception(self, timeout=None):
        """What went wrong, None if nothing did; waits like result()."""
        if not self._wait(-1.0 if timeout is None else float(timeout)):
            raise TimeoutError(f"{self.path!r} is not saved yet")
        return self._problem

    def wait(self, timeout=None):
        """Like result(), but returns False after `timeout` seconds, True when the checkpoint is published."""
        if not self._wait(-1.0 if timeout is None else float(timeout)):
            return False
        if self._problem is not None:
            raise self._problem
        return True

    def done(self):
        """True if it has ended, well or not."""
        return self._wait(0.0)

    def running(self):
        """True until it has ended."""
        return not self.done()

    def cancel(self):
        """Asks it to end early: result() then raises CanceledError, unless it was too late."""
        self._core.cancel()

    @property
    def staging_completion(self):
        """A finished future: the tensors were free when async_save returned."""
        from concurrent.futures import Future

        future = Future()
        future.set_result(None)
        return future

    @property
    def upload_completion(self):
        """This save."""
        return self

    def __repr__(self):
        return f"AsyncSave({self.path!r})"

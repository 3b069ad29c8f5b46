# SPDX-License-Identifier: Apache-2.0
"""Writing: save a dict, convert and verify checkpoints."""

import io
import os
import sys
from _collections_abc import Mapping

from . import _arrays, _core
from ._errors import InvalidError, UnsupportedError
from ._reading import Device, DType, Opaque, choice, open, progress_of

_FORMATS = {None: 0, "dcp": 1, "safetensors": 2, "torch": 3}
_CONVERTED = _FORMATS | {"universal": 5, "sharded_state": 6, "megatron": 7}
RECIPES = os.path.join(os.path.dirname(__file__), "recipes")
_STAGES = {"copy": 1, "fork": 2}
_unfinished = None  # weak references to saves in the background, once there is one


def _tree(x, path, keep):
    """The dict to save as the core takes it: plain containers and values, and Views of the tensors."""
    kind = type(x)
    if kind in (int, float, str, bytes, bool, type(None), DType, Device):
        return x
    if _arrays.is_tensor(x):
        try:
            return _arrays.view(x, False)
        except (InvalidError, UnsupportedError, TypeError, ValueError) as e:
            raise InvalidError(f'"{path}": {e}') from None
    if isinstance(x, Mapping):
        return {k: _tree(v, f"{path}.{k}" if path else str(k), keep) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        items = [_tree(v, f"{path}.{i}", keep) for i, v in enumerate(x)]
        return items if isinstance(x, list) else tuple(items)
    if isinstance(x, (set, frozenset)):
        return {_tree(v, path, keep) for v in x}
    if isinstance(x, (int, float, str, bytes)):
        return x
    if isinstance(x, bytearray):
        return bytes(x)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy and isinstance(x, numpy.generic):
        return _tree(x.item(), path, keep)
    if torch and isinstance(x, torch.dtype):
        return DType(str(x))
    if torch and isinstance(x, torch.device):
        return Device(str(x))
    if callable(getattr(x, "state_dict", None)):
        return _tree(x.state_dict(), path, keep)
    what = f"<not loaded: {x.name}>" if isinstance(x, Opaque) else f"an object of class {kind.__module__}.{kind.__qualname__}"
    raise InvalidError(f'"{path}": {what} can\'t be saved: make it plain values, or leave it out')


def _pick(table, value, name):
    try:
        return table[value]
    except (KeyError, TypeError):
        raise InvalidError(f"{name}={value!r} is none of {', '.join(repr(k) for k in table)}") from None


def save(
    path,
    state,
    *,
    wait=True,
    stage="copy",
    format=None,  # pylint: disable=redefined-builtin
    overwrite=False,
    layout=None,
    shard_size=0,
    compress=None,
    sync=None,
    checksum=None,
    threads=0,
    max_memory=0,
    progress=None,
):
    """Writes a dict of tensors and plain values as a checkpoint: all of it or nothing, durable on return.

    state: nested dicts and lists of torch tensors, numpy arrays and plain values; what has a state_dict() is asked for it.
    wait: False returns a Saving as soon as the tensors may change again. stage: how they are preserved then: "copy", or
    "fork", which falls back to "copy" for memory that processes share. format: "dcp", "safetensors" or "torch"; None goes
    by the path's suffix. layout: rules as in the tool ("mesh tp=4; * shard(0)@tp"): which rank's file gets what.
    shard_size: safetensors: maximum bytes per file. compress: DCP: "zstd" or "zstd:9". sync: False returns before the bytes
    are safe from a power cut. progress: a function of (bytes done, bytes in all), or a tqdm bar."""
    if not isinstance(state, Mapping):
        raise InvalidError(f"a dict is saved, not a {type(state).__qualname__}")
    handle = _core.save(
        path,
        _tree(state, "", None),
        stage=0 if wait else _pick(_STAGES, stage, "stage"),
        format=_pick(_FORMATS, format, "format"),
        overwrite=overwrite,
        layout=layout,
        shard_size=shard_size,
        transform=f"stream.{compress}" if compress else None,
        sync=choice(sync, "sync"),
        checksum=choice(checksum, "checksum"),
        threads=threads,
        max_memory=max_memory,
        progress=progress_of(progress) if wait else None,
    )
    return None if wait else Saving(handle, path)


def save_async(path, state, **options):
    """save(..., wait=False)."""
    return save(path, state, wait=False, **options)


class Saving:
    """A save in the background. It continues without further calls; dropping it, or leaving the program, waits for it."""

    __slots__ = ("_core", "path", "__weakref__")

    def __init__(self, core, path):
        self._core, self.path = core, path
        _remember(core)

    def wait(self, timeout=None, *, progress=None):
        """Waits until the checkpoint is published; raises if it could not be. False after `timeout` seconds."""
        return self._core.wait(-1.0 if timeout is None else float(timeout), progress_of(progress))

    def done(self):
        """True if it has ended well; raises if it failed."""
        return self._core.wait(0.0, None)

    def cancel(self):
        """Asks it to end early: wait() then raises CanceledError, unless it was too late."""
        self._core.cancel()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.wait()

    def __repr__(self):
        return f"Saving({self.path!r})"


def _remember(core):
    """At the program's end Python does not drop everything, so that is waited for."""
    global _unfinished  # pylint: disable=global-statement
    if _unfinished is None:
        import atexit
        import weakref

        _unfinished = weakref.WeakSet()
        atexit.register(_wait_for_all)
    _unfinished.add(core)


def _wait_for_all():
    for core in list(_unfinished):
        try:
            core.wait(-1.0, None)
        except Exception:  # pylint: disable=broad-except
            sys.excepthook(*sys.exc_info())


def verify(path, *, quick=False, threads=0, progress=None):
    """Looks for damage: structure, coverage and every checksum. quick reads no data.

    Returns what `reshard verify --json` prints: "ok", "damages" (a list of "error" and "message"), the names that are
    "damaged" or "gone", and "format", "tensors", "bytes", "checksums"."""
    with open(path, "raw", salvage=True) as ck:
        found = _core.verify(ck._core, quick=quick, threads=threads, progress=progress_of(progress))
        tensors = list(ck.values())
        healths = [(t.name, t.health) for t in tensors] + [(n, "gone") for n in ck._core.lost()]
        healths += [(n, h) for n, h in zip(ck.objects, ck._core.object_healths())]
        return {
            "path": os.fspath(path),
            "format": ck.format,
            "quick": quick,
            "tensors": len(tensors),
            "bytes": sum(t.nbytes for t in tensors),
            "checksums": ck.has_checksums or (ck.format != "safetensors" and not ck.kind.startswith("legacy")),
            "damages": [{"error": e, "message": m} for e, m in found],
            "damaged": [n for n, h in healths if h == "damaged"],
            "gone": [n for n, h in healths if h == "gone"],
            **({"skipped": skipped} if (skipped := ck._core.skipped()) else {}),
            **({"notes": [{"name": n, "note": why} for n, why in notes]} if (notes := ck._core.notes()) else {}),
            "ok": not found,
        }


def _casts(dtype):
    if dtype is None:
        return []
    if isinstance(dtype, Mapping):
        return [(glob, str(to)) for glob, to in dtype.items()]
    return [(None, str(dtype))]


def _names(ck, rename):
    """Old to new names, of those that change."""
    if rename is None:
        return {}
    function = (lambda name: rename.get(name, name)) if isinstance(rename, Mapping) else rename
    new = {name: function(name) for name in [*ck, *ck.objects]}
    return {old: to for old, to in new.items() if to != old}


def _recipe(recipe, reverse, numbers, config):
    """As the core takes it."""
    if recipe is None:
        if reverse or numbers or config:
            raise InvalidError("reverse, set and config belong to a recipe, and there is none")
        return None
    text = os.fsdecode(recipe)
    if "->" not in text and "<-" not in text:
        own = os.path.join(RECIPES, f"{text}.recipe")
        name = own if not os.path.exists(text) and os.path.basename(text) == text and os.path.exists(own) else text
        text = _text(name, "recipe").decode("utf-8", "surrogateescape")
    return text, reverse, _text(config, "config") if config else None, {k: float(v) for k, v in (numbers or {}).items()}


def _text(path, what):
    try:
        with io.open(path, "rb") as file:
            return file.read()
    except OSError as e:
        raise InvalidError(f'{what} "{os.fsdecode(path)}": {e.strerror}') from None


def _listed(patterns):
    return [patterns] if isinstance(patterns, str) else list(patterns)


def convert(
    source,
    path,
    *,
    format=None,  # pylint: disable=redefined-builtin
    layout=None,
    include=(),
    exclude=(),
    rename=None,
    dtype=None,
    shard_size=0,
    compress=None,
    overwrite=False,
    keep=False,
    resume=False,
    dry_run=False,
    salvage=False,
    recipe=None,
    reverse=False,
    set=None,  # pylint: disable=redefined-builtin
    config=None,
    carry=None,
    sync=None,
    checksum=None,
    verify=None,  # pylint: disable=redefined-outer-name
    threads=0,
    max_memory=0,
    progress=None,
):
    """Writes a checkpoint as another one, in one pass and in bounded memory.

    source: a path or an open Checkpoint. format: as in save(), or "universal", "sharded_state" or "megatron". include,
    exclude: shell-style globs. rename: a function from old to new names, or a dict of them. dtype: one for all
    floating-point tensors, or a dict of globs to dtypes, of which the first match wins. keep, resume: an interrupted run leaves its work, and another one takes it up. dry_run writes nothing. salvage: only
    what is intact. recipe: one that comes along by its name, a file, or a text with "->" or "<-" in it; reverse: from right
    to left; set: a dict of its numbers; config: the config.json that has them. carry: False copies no other files of the folder. The rest is as in save().

    Returns "format", "tensors", "objects", "files", "bytes", "carried", "reused" (bytes that an interrupted run had
    written) and "left_out", a list of (name, reason)."""
    ck = source if hasattr(source, "_core") else open(source, "raw", salvage=salvage)
    try:
        if salvage:
            _core.verify(ck._core, threads=threads)
        settings = (
            _pick(_CONVERTED, format, "format"),
            shard_size,
            f"stream.{compress}" if compress else None,
            max_memory,
            threads,
            overwrite,
            keep,
            resume,
            choice(sync, "sync"),
            choice(checksum, "checksum"),
            choice(verify, "verify"),
            dry_run,
            choice(carry, "carry"),
            salvage,
        )
        names, made = _names(ck, rename), _recipe(recipe, reverse, set, config)
        return _core.convert(
            ck._core, os.fsencode(path), layout, _listed(include), _listed(exclude), _casts(dtype), names, made, settings, progress_of(progress)
        )
    finally:
        if ck is not source:
            ck.close()

# SPDX-License-Identifier: Apache-2.0
"""diff and plan, which are the tool's: it runs as a process of its own and prints JSON."""

import os

from ._errors import make
from ._reading import progress_of

TOOL = os.path.join(os.path.dirname(__file__), "bin", "reshard")
_CODES = {2: 1, 3: 21, 4: 12}  # exit codes to rsd_err: invalid, I/O, format


def diff(a, b, *, include=(), exclude=(), rename=(), cast=False, rtol=None, atol=None, names_only=False, threads=0, progress=None):
    """Compares two checkpoints, whatever their formats and layouts.

    Returns what `reshard diff --json` prints: "same", "differences" (a list of "name", "kind", "what" and more) and
    "not_compared". rename: sed's "s/RE/TO/", or several. cast: cast the tensors of a to the dtypes of b."""
    options = {"include": include, "exclude": exclude, "rename": rename, "cast": cast, "rtol": rtol, "atol": atol}
    options |= {"names-only": names_only, "threads": threads or None}
    return _run("diff", [a, b], options, progress)


def plan(path, layout):
    """What loading a checkpoint into another layout would read, move and need, for each rank; reads only metadata.

    layout: rules, "mesh tp=4; * shard(0)@tp", or a file with rules. Returns what `reshard plan --json` prints: "ranks", a
    list with the bytes of each, and "total"."""
    return _run("plan", [path], {"layout": os.fspath(layout)}, None)


def _words(options):
    for name, value in options.items():
        if value is True:
            yield f"--{name}"
        elif value is not None and value is not False:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                yield f"--{name}={one}"


def _operand(path):
    """A path that no one takes for an option."""
    path = os.fsdecode(path)
    return os.path.join(".", path) if path.startswith("-") else path


def _run(command, paths, options, progress):
    import json
    import subprocess

    step = progress_of(progress)
    words = [TOOL, command, "--json", *_words(options), *map(_operand, paths)]
    # An MPI job's variables would make it a rank of that job.
    env = {**os.environ, "RESHARD_MPI": "none", "RESHARD_REPORT": "1"}
    with os.fdopen(os.memfd_create("reshard"), "w+b") as out:
        process = None
        try:
            with _NoInterrupts():
                process = subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
            error, said = _follow(process.stderr, step)
            code = process.wait()
        except BaseException:
            if process:
                process.kill()
                process.wait()
            raise
        finally:
            if process:
                process.stderr.close()
        if error:
            raise make(*error)
        if code not in (0, 1, 5):
            raise make(_CODES.get(code, 30), said or f"reshard {command} ended with {code}")
        if said:
            import warnings

            warnings.warn(said, stacklevel=3)
        out.seek(0)
        return json.load(out)


class _NoInterrupts:
    """Puts Ctrl-C off to its end: in the middle of Popen it would leave a process that nobody knows."""

    def __enter__(self):
        import signal
        import threading

        self._came, self._signal, self._handler = [], signal, None
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._handler = signal.signal(signal.SIGINT, lambda *which: self._came.append(which))

    def __exit__(self, *exc):
        if self._handler:
            self._signal.signal(self._signal.SIGINT, self._handler)
        if self._came:
            self._handler(*self._came[-1])


def _follow(lines, step):
    """Reports progress until the tool ends; returns the arguments of make() if it failed, and other messages."""
    error, said = None, []
    for line in lines:
        word, _, rest = line.decode("utf-8", "surrogateescape").rstrip("\n").partition(" ")
        if word == "progress":
            if step:
                step(*map(int, rest.split()))
        elif word == "error":
            code, errno, message = rest.split(" ", 2)
            error = (int(code), message, -1, int(errno))
        elif word == "reshard:":
            said.append(rest)
    return error, "; ".join(said)

# SPDX-License-Identifier: Apache-2.0
"""Runs a function of a test module in several processes that are torch's ranks: gloo, CPU, a FileStore in a temporary
folder.

    run(4, module.function, argument)      # function(rank, argument), on every rank

A rank that fails, or does not end in time, fails the test with its traceback; all others are killed then."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT = 120.0  # seconds
AFTER = 10.0  # seconds for the others, once one has failed


def run(size, function, *args, timeout=TIMEOUT, may_die=(), env=None):
    """Returns what function(rank, *args) returned on each rank. `may_die`: ranks that may end by a signal; theirs is None.
    `env`: more variables for them."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reshard-ranks-"))
    try:
        return _run(folder, size, function, args, timeout, may_die, env or {})
    finally:
        shutil.rmtree(folder, True)


def _run(folder, size, function, args, timeout, may_die, env):
    import pickle

    module = sys.modules[function.__module__]
    (folder / "call").write_bytes(pickle.dumps((module.__file__, function.__name__, args)))
    path = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=path, **env)
    command = [sys.executable, "-X", "faulthandler", __file__, str(folder), str(size)]
    processes = []
    for rank in range(size):
        with open(folder / f"out{rank}", "wb") as out:
            processes.append(subprocess.Popen([*command, str(rank)], env=env, stdout=out, stderr=out))
    try:
        failed = _wait(processes, timeout, may_die)
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
            p.wait()
    if failed:
        texts = [f"rank {r} ({p.returncode}):\n{(folder / f'out{r}').read_text(errors='replace')}" for r, p in enumerate(processes)]
        raise AssertionError(f"{failed}\n" + "\n".join(texts))
    return [pickle.loads((folder / f"result{r}").read_bytes()) if r not in may_die or (folder / f"result{r}").exists() else None for r in range(size)]


def _wait(processes, timeout, may_die):
    """None, or what went wrong."""
    end = time.monotonic() + timeout
    failed = None
    while any(p.poll() is None for r, p in enumerate(processes) if r not in may_die):
        bad = [r for r, p in enumerate(processes) if p.poll() not in (None, 0) and r not in may_die]
        if bad and not failed:
            failed = f"rank {bad[0]} failed"
            end = min(end, time.monotonic() + AFTER)
        if time.monotonic() > end:
            late = [r for r, p in enumerate(processes) if p.poll() is None and r not in may_die]
            for r in late:
                processes[r].send_signal(signal.SIGABRT)  # faulthandler prints where it is
            time.sleep(0.5)
            return failed or f"ranks {late} did not end within {timeout} s"
        time.sleep(0.02)
    bad = [r for r, p in enumerate(processes) if p.returncode not in (None, 0) and r not in may_die]
    return failed or (f"rank {bad[0]} failed" if bad else None)


def _be_rank(folder, size, rank):
    import importlib.util
    import pickle

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    path, name, args = pickle.loads((folder / "call").read_bytes())
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), size), rank=rank, world_size=size)
    result = getattr(module, name)(rank, *args)
    (folder / f"result{rank}").write_bytes(pickle.dumps(result))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    _be_rank(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

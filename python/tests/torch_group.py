# SPDX-License-Identifier: Apache-2.0
"""Ranks for the tests with torch: spawned processes in one gloo group that run functions of a test's module, one after the
other. Importing torch takes longer than all that they do, so a test class starts them once."""

import multiprocessing
import os
import tempfile
import traceback

LIMIT = 120  # seconds for one function


def _main(rank, size, folder, pipe):
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=size, timeout=timedelta(seconds=LIMIT))
    while True:
        order = pipe.recv()
        if order is None:
            break
        function, args = order
        try:
            pipe.send((True, function(rank, *args)))
        except BaseException:  # pylint: disable=broad-except
            pipe.send((False, traceback.format_exc()))
    dist.destroy_process_group()


class Ranks:
    """`size` processes."""

    def __init__(self, size):
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="reshard-")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        pairs = [context.Pipe() for _ in range(size)]
        self._pipes = [mine for mine, _ in pairs]
        self._processes = [
            context.Process(target=_main, args=(rank, size, self._folder.name, theirs)) for rank, (_, theirs) in enumerate(pairs)
        ]
        for process in self._processes:
            process.start()

    def run(self, function, *args):
        """function(rank, *args) on every rank; the list of what they returned."""
        for pipe in self._pipes:
            pipe.send((function, args))
        answers = []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(LIMIT):
                raise TimeoutError(f"rank {rank} said nothing for {LIMIT} seconds")
            answers.append(pipe.recv())
        bad = [f"rank {rank}: {what}" for rank, (good, what) in enumerate(answers) if not good]
        if bad:
            raise AssertionError("\n".join(bad))
        return [what for _, what in answers]

    def close(self):
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()

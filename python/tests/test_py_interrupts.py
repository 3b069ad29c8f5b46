# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every call that takes time, and leaves nothing behind."""

import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import unittest

from interrupts import inside, interrupted
from support import Case

LIMIT = 60  # seconds for a call that would take much longer, on a busy machine
HUGE = 32 << 30  # bytes of a file that is a hole
LARGE = 6 << 30


class Handshakes(unittest.TestCase):
    """The handshake that the other tests rely on."""

    def test_a_thread_that_ends_does_not_hide_the_next(self):
        go, never = threading.Event(), threading.Event()
        old = threading.Thread(target=go.wait)
        new = threading.Thread(target=never.wait, daemon=True)
        old.start()

        def call():
            go.set()
            old.join()
            new.start()
            new.join(LIMIT)

        self.assertTrue(interrupted(call))
        never.set()

    def test_a_call_without_a_thread_is_not_interrupted(self):
        self.assertFalse(interrupted(lambda: None))

    def test_a_function_is_interrupted_inside(self):
        def call():
            threading.Event().wait(LIMIT)

        self.assertTrue(interrupted(call, inside(threading.Condition.wait)))


class Interrupts(Case):
    """Each call runs in a process of its own: a hole in a file, or memory that was never touched, is its work."""

    def ends(self, code, after="", **names):
        """Runs code in which `call` is a function; it must be interrupted, and the folder be as before."""
        before = sorted(p.name for p in self.folder.iterdir())
        script = "import mmap, os, sys, time\nimport reshard\nfrom interrupts import ended_children, inside, interrupted, workers\nstarted = None\n"
        script += "".join(f"{name} = {value!r}\n" for name, value in names.items())
        script += textwrap.dedent(code) + "\nprint('interrupted' if interrupted(call, started) else 'done', flush=True)\n" + textwrap.dedent(after)
        script += "\nassert set(ended_children()) <= {9, 15}, 'the tool ran on'\n"
        path = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, cwd=self.folder, env={**os.environ, "PYTHONPATH": path}
        )
        self.assertEqual((done.stdout, done.stderr), ("interrupted\n", ""))
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), before)

    def hole(self, name, size):
        return str(self.file({"w": ("U8", [size], size)}, name))

    def many(self, name, count=400_000):
        """A file whose header takes long to read."""
        entries = ",".join(f'"layers.{i}.weight":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i in range(count))
        header = f"{{{entries}}}".encode()
        header += b" " * (-len(header) % 8)
        path = self.folder / name
        with open(path, "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header)
            f.truncate(f.tell() + count)
        return str(path)

    def test_open(self):
        self.ends("def call(): reshard.open(x)", x=self.many("x.safetensors"))

    def test_plan(self):
        self.ends("def call(): reshard.plan(x, 'mesh tp=4; * shard(0)@tp')", x=self.many("x.safetensors"))

    def test_the_latest_step(self):
        self.many("1.safetensors")
        self.ends("series = reshard.Series('.')\ndef call(): series.latest()")

    def test_prune(self):
        """No checkpoint is removed once the call has been interrupted, and the series can be used at once."""
        (self.folder / "run").mkdir()
        first, links = self.many("run/0.safetensors", 100_000), 150
        for i in range(1, links):
            os.link(first, self.folder / "run" / f"{i}.safetensors")
        code = """
            series = reshard.Series("run")
            before = workers()
            def call(): series.prune()
        """
        after = """
            left = len(series.steps())
            assert series.path(7) == "run/7.safetensors" and series.latest() == last
            while workers() - before:
                time.sleep(0.01)
            assert left - len(series.steps()) <= 1 < left, (left, series.steps())
        """
        self.ends(code, after, last=links - 1)

    def test_load(self):
        self.ends("ck = reshard.open(x, 'raw')\ndef call(): ck.load()", x=self.hole("x.safetensors", LARGE))

    def test_many_reads(self):
        x = str(self.file({f"w{i}": ("U8", [64 << 20], 64 << 20) for i in range(96)}))
        self.ends("ck = reshard.open(x, 'raw')\ndef call(): ck.load(list(ck))", x=x)

    def test_one_read(self):
        self.ends("w = reshard.open(x, 'raw')['w']\ndef call(): w[:]", x=self.hole("x.safetensors", LARGE))

    def test_convert(self):
        self.ends("def call(): reshard.convert(x, 'out')", x=self.hole("x.safetensors", HUGE))

    def test_save(self):
        self.ends("big = memoryview(mmap.mmap(-1, size))\ndef call(): reshard.save('out', {'w': big})", size=LARGE)

    def test_async_save_while_it_stages(self):
        # Memory that processes share is copied, not forked.
        self.ends("big = memoryview(mmap.mmap(-1, size))\ndef call(): reshard.save_async('out', {'w': big})", size=1 << 30)

    def test_the_wait_for_an_async_save(self):
        code = """
            big = memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            saving = reshard.save_async("out", {"w": big}, stage="fork")
            call, started = saving.wait, inside(reshard.Saving.wait)
        """
        after = """
            saving.cancel()
            try:
                saving.wait()
            except reshard.CanceledError:
                pass
        """
        self.ends(code, after, size=LARGE)

    def test_verify(self):
        code = "import mmap, reshard\nreshard.save('one', {'w': memoryview(mmap.mmap(-1, 1 << 30))}, sync=False)"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=self.folder)
        self.ends("def call(): reshard.verify('one')")

    def test_diff(self):
        two = [self.hole(name, HUGE) for name in ("x.safetensors", "y.safetensors")]
        self.ends("def call(): reshard.diff(*two)", two=two)

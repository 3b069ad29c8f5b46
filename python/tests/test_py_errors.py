# SPDX-License-Identifier: Apache-2.0
"""Errors, memory, signals, interpreters."""

import gc
import importlib
import multiprocessing
import pickle
import signal
import subprocess
import sys
import time
import weakref

import reshard
from support import Case, needs_numpy, needs_torch, rss
from reshard import _errors


def open_missing(path):
    reshard.open(path)


class Errors(Case):
    def test_every_error_pickles_with_code_and_rank(self):
        for kind in [reshard.Error, *reshard.Error.__subclasses__()]:
            one = kind("what happened", 3, 28)
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                two = pickle.loads(pickle.dumps(one, protocol))
                self.assertIs(type(two), kind)
                self.assertEqual((str(two), two.code, two.rank, two.errno), ("what happened", kind.code, 3, 28))

    def test_every_code_has_a_class(self):
        for code in (1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23, 24):
            self.assertEqual(_errors.make(code, "x").code, code)
        self.assertIs(type(_errors.make(30, "x")), reshard.Error)

    def test_an_error_crosses_processes(self):
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                with self.assertRaises(reshard.NotFoundError) as caught:
                    pool.apply(open_missing, (str(self.folder / "none"),))
            self.assertEqual((caught.exception.name, caught.exception.rank, caught.exception.errno), ("RSD_E_NOTFOUND", -1, 2))


class Memory(Case):
    def big(self):
        return reshard.open(self.file({"w": ("U8", (1 << 23,), 1 << 23)}), "raw")

    def assert_no_growth(self, step, times=40, most=64 << 20):
        """The second round finds what the first left with malloc. A leak of 8 MiB a step is 320 MiB."""
        for _ in range(times):
            step()
        gc.collect()
        before = rss()
        for _ in range(times):
            step()
        gc.collect()
        self.assertLess(rss() - before, most)

    def test_results_own_their_memory(self):
        ck = self.big()
        view = memoryview(ck["w"][:10])
        ck.close()
        del ck
        gc.collect()
        self.assertEqual(bytes(view), bytes(10))

    def test_memory_goes_with_the_last_user(self):
        array = self.big()["w"][:10]
        gone = weakref.ref(array)
        view = memoryview(array)
        del array
        self.assertIsNotNone(gone())
        view.release()
        self.assertIsNone(gone())

    def test_nothing_leaks(self):
        ck = self.big()
        self.assert_no_growth(lambda: ck["w"][...])
        self.assert_no_growth(lambda: ck["w"][...].__dlpack__())
        self.assert_no_growth(lambda: ck["w"][...].__dlpack__(max_version=(1, 0)))
        self.assert_no_growth(lambda: ck.load(["w"]))
        self.assert_no_growth(lambda: reshard.open(self.folder / "x.safetensors", "raw"), 1000, 4 << 20)
        n = iter(range(10**6))
        self.assert_no_growth(lambda: reshard.save(self.folder / "s", {"w": memoryview(bytearray(1 << 22)), "n": next(n)}, overwrite=True), 12, 24 << 20)

    def test_errors_do_not_leak(self):
        ck = self.big()

        def fail():
            for wrong in (lambda: reshard.open("/nonexistent"), lambda: ck["w"].read(into=bytes(1 << 23)), lambda: reshard.save("/x", {"a": 1j})):
                try:
                    wrong()
                except (ValueError, reshard.Error):
                    pass

        self.assert_no_growth(fail, 1000, 4 << 20)

    @needs_numpy
    def test_numpy_s_arrays_keep_the_memory(self):
        import numpy as np

        ck = self.big()
        array = ck["w"].read(framework="np")
        part = array[3:5]
        del array
        ck.close()
        self.assertEqual(part.tolist(), [0, 0])
        self.assertTrue(part.flags.writeable)
        ck = self.big()
        self.assert_no_growth(lambda: ck["w"].read(framework="np"))
        self.assert_no_growth(lambda: np.from_dlpack(ck["w"][...]))

    @needs_torch
    def test_torch_s_tensors_keep_the_memory(self):
        ck = self.big()
        tensor = ck["w"].read(framework="pt")[3:5]
        ck.close()
        self.assertEqual(tensor.tolist(), [0, 0])
        ck = self.big()
        self.assert_no_growth(lambda: ck["w"].read(framework="pt"))


class Stop(Exception):
    pass


class Signals(Case):
    def test_a_signal_ends_a_long_call(self):
        """A load that takes long enough; if the machine is faster than the timer, with more of it."""

        def handler(number, frame):
            raise Stop

        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for tensors in (16, 32, 64):
            names = [f"t{i}" for i in range(tensors)]
            ck = reshard.open(self.file({n: ("U8", (1 << 25,), 1 << 25) for n in names}), "raw")
            start = time.monotonic()
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.06)
                ck.load()
                finished = True
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                finished = False
            if not finished:
                self.assertLess(time.monotonic() - start, 5)  # of a loaded machine; otherwise within a second
                return
        self.fail("no load was interrupted")

    def test_ctrl_c_is_keyboard_interrupt(self):
        code = (
            "import os, signal, reshard\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # even where SIGINT is ignored
            f"ck = reshard.open({str(self.file({'w': ('U8', (1 << 26,), 1 << 26)}))!r}, 'raw')\n"
            "try:\n"
            "    ck.load(progress=lambda done, total: os.kill(os.getpid(), signal.SIGINT))\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "interrupted\n")


class Interpreters(Case):
    def test_importing_takes_neither_numpy_nor_torch(self):
        code = "import sys, reshard; print([m for m in ('numpy', 'torch', 'json', 'subprocess') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "[]\n")

    def test_interpreters_have_modules_of_their_own(self):
        path = str(self.file({"w": ("U8", (2,), b"hi")}))
        code = f"import sys; sys.path[:] = {sys.path!r}; import reshard; assert bytes(reshard.open({path!r}, 'raw')['w'][...]) == b'hi'"
        try:
            interpreters = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
        except ImportError:
            self.skipTest("this Python has no interpreters")
        for _ in range(3):
            number = interpreters.create()
            self.assertIsNone(interpreters.run_string(number, code))
            interpreters.destroy(number)
        self.assertEqual(bytes(reshard.open(path, "raw")["w"][...]), b"hi")

    def test_the_module_can_be_loaded_again(self):
        code = "import sys, reshard; old = reshard._core; del sys.modules['reshard._core']; import importlib; new = importlib.import_module('reshard._core'); assert new is not old"
        subprocess.run([sys.executable, "-c", code], check=True)

# SPDX-License-Identifier: Apache-2.0
"""numpy, ml_dtypes and torch: the same bits as their own readers give."""

import subprocess
import sys
import unittest
import unittest.mock

import reshard
from support import DTYPES, PLAIN, Case, installed, needs_numpy, needs_safetensors, needs_torch, pattern


class Numpy(Case):
    def every(self):
        data = {name: pattern(6 * size) for name, (_, size) in DTYPES.items()}
        data["BOOL"] = bytes([0, 1, 1, 0, 1, 0])
        return data, self.file({name: (name, (2, 3), data[name]) for name in DTYPES})

    @needs_numpy
    def test_plain_dtypes_are_numpy_s(self):
        import numpy as np

        data, path = self.every()
        ck = reshard.open(path, "np")
        for name in PLAIN:
            got = ck[name][...]
            self.assertEqual((got.dtype, got.shape, got.tobytes()), (np.dtype(DTYPES[name][0]), (2, 3), data[name]))
            self.assertEqual(np.asarray(ck[name]).tobytes(), data[name])
        self.assertEqual(np.asarray(ck["F32"], dtype="f8").dtype, np.float64)

    @needs_numpy
    def test_the_others_take_ml_dtypes_or_say_so(self):
        data, path = self.every()
        ck = reshard.open(path, "np")
        for name in DTYPES.keys() - PLAIN:
            if installed("ml_dtypes"):
                got = ck[name][...]
                self.assertEqual((got.dtype.name, got.shape, got.tobytes()), (DTYPES[name][0], (2, 3), data[name]))
                self.assertEqual(ck[name][1:1].shape, (0, 3))
            else:
                with self.assertRaisesRegex(reshard.UnsupportedError, "ml_dtypes"):
                    ck[name][...]

    @needs_numpy
    def test_arrays_of_any_kind_are_saved(self):
        import numpy as np

        state = {
            "f": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
            "back": np.arange(6)[::-2],
            "wide": np.broadcast_to(np.float32(3), (2, 3)),
            "scalar": np.array(7, "i2"),
            "empty": np.zeros((0, 4)),
            "bool": np.array([True, False]),
            "number": np.float32(0.5),
        }
        reshard.save(self.folder / "x", state)
        got = reshard.load(self.folder / "x", "np")
        for name in state:
            np.testing.assert_array_equal(got[name], state[name])
        for bad in (np.array(["a"]), np.array([object()]), np.zeros(2, ">f4"), np.zeros(2, "M8[s]"), np.zeros(2, [("a", "f4")]), np.zeros((1,) * 9)):
            with self.assertRaisesRegex(reshard.InvalidError, '"bad"'):
                reshard.save(self.folder / "y", {"bad": bad})

    @unittest.skipUnless(installed("ml_dtypes") and installed("numpy"), "ml_dtypes is not installed")
    def test_ml_dtypes_are_saved(self):
        import ml_dtypes
        import numpy as np

        for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            array = np.arange(8).astype(kind).reshape(2, 4).T
            reshard.save(self.folder / "x", {"w": array}, overwrite=True)
            got = reshard.open(self.folder / "x", "np")["w"]
            self.assertEqual(got.dtype, array.dtype.name)
            self.assertEqual(got[...].tobytes(), array.tobytes())
            into = np.zeros((4, 2), kind)
            got.read(into=into)
            self.assertEqual(into.tobytes(), array.tobytes())

    @needs_numpy
    def test_read_only_arrays_are_no_targets(self):
        import numpy as np

        _, path = self.every()
        target = np.zeros((2, 3), "f4")
        target.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            reshard.open(path)["F32"].read(into=target)


class Bare(Case):
    def test_without_numpy_and_torch_a_missing_framework_is_named(self):
        path = self.file({"w": ("F32", (1,), bytes(4))})
        code = (
            "import sys; sys.modules['numpy'] = None; sys.modules['torch'] = None\n"
            f"import reshard; ck = reshard.open({str(path)!r}, 'raw'); print(bytes(ck['w'][...]))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, f"{bytes(4)}\n")


class Torch(Case):
    @needs_safetensors
    def test_bits_equal_those_of_safetensors(self):
        import safetensors.torch
        import torch

        data = {name: pattern(6 * size) for name, (_, size) in DTYPES.items()}
        data["BOOL"] = bytes([0, 1, 1, 0, 1, 0])
        names = [n for n in DTYPES if n not in ("C64", "F8_E8M0")]
        path = self.file({name: (name, (2, 3), data[name]) for name in names})
        theirs = safetensors.torch.load_file(path)
        ck = reshard.open(path, "pt")
        for name in names:
            for ours, want in ((ck[name][...], theirs[name]), (ck[name][1], theirs[name][1]), (ck[name][:, -1], theirs[name][:, -1])):
                self.assertEqual((ours.dtype, ours.shape), (want.dtype, want.shape))
                self.assertTrue(torch.equal(ours.contiguous().view(torch.uint8), want.contiguous().view(torch.uint8)), name)

    @needs_torch
    def test_every_dtype_of_torch_goes_there_and_back(self):
        import torch

        kinds = {str(d).removeprefix("torch."): d for d in vars(torch).values() if isinstance(d, torch.dtype)}
        done = 0
        for name, kind in sorted(kinds.items()):
            try:
                reshard._core.dtype(name)
            except reshard.Error:
                continue
            raw = torch.arange(32, dtype=torch.uint8) % 2 if kind == torch.bool else torch.arange(32, dtype=torch.uint8)
            tensor = raw.view(kind).reshape(2, -1)
            reshard.save(self.folder / "x", {"w": tensor}, overwrite=True)
            got = reshard.open(self.folder / "x", "pt")["w"][...]
            self.assertEqual((got.dtype, got.shape), (tensor.dtype, tensor.shape), name)
            self.assertTrue(torch.equal(got.view(torch.uint8), tensor.view(torch.uint8)), name)
            done += 1
        self.assertGreaterEqual(done, 20)

    @needs_torch
    def test_torch_reads_what_is_saved_and_the_reverse(self):
        import torch
        import torch.distributed.checkpoint as dcp

        state = {"model": {"w": torch.randn(5, 7), "b": torch.randn(3, dtype=torch.float64)}, "step": 9}
        reshard.save(self.folder / "ours.pt", state)
        theirs = torch.load(self.folder / "ours.pt")
        self.assertTrue(torch.equal(theirs["model"]["w"], state["model"]["w"]))
        self.assertEqual(theirs["step"], 9)
        reshard.save(self.folder / "ours", state)
        target = {"model": {"w": torch.zeros(5, 7), "b": torch.zeros(3, dtype=torch.float64)}, "step": 0}
        dcp.load(target, checkpoint_id=self.folder / "ours", no_dist=True)
        self.assertTrue(torch.equal(target["model"]["w"], state["model"]["w"]))
        self.assertEqual(target["step"], 9)
        dcp.save(state, checkpoint_id=self.folder / "theirs", no_dist=True)
        got = reshard.load(self.folder / "theirs", "pt")
        self.assertTrue(torch.equal(got["model"]["b"], state["model"]["b"]))
        self.assertEqual(got["step"], 9)

    @needs_torch
    def test_tensors_of_any_kind_are_saved(self):
        import torch

        base = torch.randn(4, 6)
        state = {
            "t": base.T,
            "step": base[:, ::2],
            "expand": torch.ones(1).expand(3, 4),
            "grad": torch.ones(2, requires_grad=True),
            "parameter": torch.nn.Parameter(torch.ones(2)),
            "conj": torch.tensor([1 + 2j]).conj(),
            "scalar": torch.tensor(3),
            "empty": torch.zeros(0, 5),
        }
        reshard.save(self.folder / "x", state)
        got = reshard.load(self.folder / "x", "pt")
        for name, want in state.items():
            self.assertTrue(torch.equal(got[name], want), name)
        for bad in (torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.zeros((1,) * 9)):
            with self.assertRaisesRegex(reshard.InvalidError, '"bad"'):
                reshard.save(self.folder / "y", {"bad": bad})

    @needs_torch
    def test_tensors_are_targets(self):
        import torch

        w = torch.randn(4, 6, dtype=torch.bfloat16)
        reshard.save(self.folder / "x", {"w": w})
        ck = reshard.open(self.folder / "x", "pt")
        for target in (torch.zeros(4, 6, dtype=w.dtype), torch.zeros(6, 4, dtype=w.dtype).T, torch.nn.Parameter(torch.zeros(4, 6, dtype=w.dtype))):
            ck.load(into={"w": target})
            self.assertTrue(torch.equal(target, w))
        with self.assertRaises(ValueError):
            ck.load(into={"w": torch.zeros(1, dtype=w.dtype).expand(4, 6)})
        with self.assertRaises(reshard.MismatchError):
            ck.load(into={"w": torch.zeros(4, 6)})

    @needs_torch
    def test_shared_memory_falls_back_from_fork_to_copy(self):
        import torch

        w = torch.ones(1000).share_memory_()
        saving = reshard.save_async(self.folder / "x", {"w": w}, stage="fork")
        w.zero_()
        saving.wait()
        self.assertTrue(torch.equal(reshard.load(self.folder / "x", "pt")["w"], torch.ones(1000)))

    @needs_torch
    def test_values_of_torch(self):
        import torch

        state = {"dtype": torch.bfloat16, "device": torch.device("cuda:1"), "size": torch.Size([1, 2])}
        reshard.save(self.folder / "x.pt", state)
        self.assertEqual(reshard.load(self.folder / "x.pt", "pt"), {**state, "size": (1, 2)})
        self.assertEqual(reshard.load(self.folder / "x.pt", "raw")["dtype"], "bfloat16")

    @needs_torch
    def test_pickles_are_never_run(self):
        import torch

        class Evil:
            def __reduce__(self):
                return print, ("run",)

        torch.save({"w": torch.ones(2), "evil": Evil()}, self.folder / "x.pt")
        with unittest.mock.patch("builtins.print") as ran:
            got = reshard.load(self.folder / "x.pt", "pt")
        ran.assert_not_called()
        self.assertIsInstance(got["evil"], reshard.Opaque)
        self.assertRegex(repr(got["evil"]), r"^<not loaded: \w+\.print\('run'\)>$")
        with self.assertRaises(reshard.InvalidError):
            reshard.save(self.folder / "y.pt", got)

# SPDX-License-Identifier: Apache-2.0
"""Opening checkpoints, and reading any part of them."""

import array
import shutil
import struct
import threading

import reshard
from support import DTYPES, Case, needs_numpy, pattern

FLOATS = list(range(24))


class Reading(Case):
    def setUp(self):
        super().setUp()
        self.path = self.file(
            {
                "w": ("F32", (4, 6), struct.pack("<24f", *FLOATS)),
                "scalar": ("I64", (), struct.pack("<q", -5)),
                "empty": ("F32", (0, 3), b""),
            },
            metadata={"format": "pt", "who": "me"},
        )
        self.ck = reshard.open(self.path, "raw")

    def values(self, key):
        return list(memoryview(bytes(self.ck["w"][key])).cast("f"))

    def test_it_is_a_mapping_of_names_to_tensors(self):
        self.assertEqual(sorted(self.ck), ["empty", "scalar", "w"])
        self.assertEqual(len(self.ck), 3)
        self.assertIn("w", self.ck)
        self.assertNotIn("v", self.ck)
        with self.assertRaises(KeyError):
            self.ck["v"]
        self.assertEqual(self.ck.metadata["who"], "me")
        self.assertEqual((self.ck.format, self.ck.kind), ("safetensors", ""))

    def test_a_tensor_tells_dtype_shape_and_chunks(self):
        w = self.ck["w"]
        self.assertEqual((w.name, w.dtype, w.shape, w.ndim, w.nbytes, len(w)), ("w", "float32", (4, 6), 2, 96, 4))
        (chunk,) = w.chunks
        self.assertEqual((chunk.offsets, chunk.shape, chunk.length), ((0, 0), (4, 6), 96))
        self.assertEqual(self.ck["scalar"].shape, ())
        with self.assertRaises(TypeError):
            len(self.ck["scalar"])

    def test_slices_are_those_of_python(self):
        rows = [FLOATS[6 * i : 6 * i + 6] for i in range(4)]
        for a in (slice(None), slice(1, 3), slice(-2, None), slice(2, 1), slice(0, 99), slice(-99, 1)):
            for b in (slice(None), slice(2, -1), slice(5, 6), slice(3, 3)):
                self.assertEqual(self.values((a, b)), [x for row in rows[a] for x in row[b]], (a, b))

    def test_numbers_drop_dimensions(self):
        self.assertEqual(self.ck["w"][1].shape, (6,))
        self.assertEqual(self.values(-1), FLOATS[18:])
        self.assertEqual(self.ck["w"][2, 3].shape, ())
        self.assertEqual(self.values((2, 3)), [15])
        self.assertEqual(self.ck["w"][..., 1].shape, (4,))
        self.assertEqual(self.values((Ellipsis, 1)), FLOATS[1::6])

    def test_scalars_and_empty_tensors(self):
        self.assertEqual(memoryview(self.ck["scalar"][()]).tolist(), -5)
        self.assertEqual(memoryview(self.ck["scalar"][...]).tolist(), -5)
        self.assertEqual(self.ck["empty"][...].shape, (0, 3))
        self.assertEqual(self.ck["empty"][:, 1].shape, (0,))
        self.assertEqual(self.ck["w"][1:1].nbytes, 0)

    def test_other_indices_are_refused(self):
        for key in (slice(0, 4, 2), slice(None, None, -1), 4, -5, (0, 0, 0), 1.5, "a", True, None, [0], (..., ...)):
            with self.assertRaises(IndexError, msg=key):
                self.ck["w"][key]

    def test_into_fills_the_given_memory(self):
        target = memoryview(bytearray(96)).cast("f", (4, 6))
        self.assertIs(self.ck["w"].read(into=target), target)
        self.assertEqual(target.tolist(), [FLOATS[6 * i : 6 * i + 6] for i in range(4)])
        row = array.array("f", [0] * 6)
        self.ck["w"].read(2, into=row)
        self.assertEqual(list(row), FLOATS[12:18])

    def test_into_refuses_what_does_not_fit(self):
        for target in (bytes(96), memoryview(bytes(96)).cast("f", (4, 6))):
            with self.assertRaises((ValueError, reshard.Error), msg=target):
                self.ck["w"].read(into=target)
        for target in (memoryview(bytearray(96)).cast("i", (4, 6)), memoryview(bytearray(96)).cast("f", (6, 4))):
            with self.assertRaises(reshard.MismatchError):
                self.ck["w"].read(into=target)

    def test_many_reads_in_one_call(self):
        got = self.ck.load()
        self.assertEqual(sorted(got), ["empty", "scalar", "w"])
        got = self.ck.load([("w", slice(1, 2)), "scalar"])
        self.assertEqual(list(memoryview(got["w"]).cast("B").cast("f")), FLOATS[6:12])
        memory = bytearray(48)
        halves = [memoryview(memory)[:24].cast("f"), memoryview(memory)[24:].cast("f")]
        self.ck.load([("w", 0), ("w", 1)], into=halves)
        self.assertEqual(halves[0].tolist() + halves[1].tolist(), FLOATS[:12])

    def test_cast_takes_another_dtype(self):
        target = array.array("d", [0] * 6)
        self.ck.load([("w", 1)], into=[target], cast=True)
        self.assertEqual(list(target), FLOATS[6:12])

    def test_overlapping_targets_are_refused(self):
        memory = bytearray(96)
        one, two = memoryview(memory)[:24].cast("f"), memoryview(memory)[20:44].cast("f")
        with self.assertRaisesRegex(ValueError, "overlap"):
            self.ck.load([("w", 0), ("w", 1)], into=[one, two])
        self.assertEqual(memory, bytes(96))

    def test_closed_means_closed(self):
        w = self.ck["w"]
        self.ck.close()
        self.ck.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            w[0]

    def test_threads_read_at_once_while_another_closes(self):
        wrong = []

        def read():
            try:
                for _ in range(50):
                    if self.values(slice(None)) != FLOATS:
                        wrong.append("bytes")
            except ValueError:  # closed meanwhile
                pass

        threads = [threading.Thread(target=read) for _ in range(8)]
        for t in threads:
            t.start()
        self.ck.close()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_a_vanished_file_is_an_error_or_still_read(self):
        reshard.save(self.folder / "dcp", {"w": memoryview(bytearray(400)).cast("f")})
        ck = reshard.open(self.folder / "dcp", "raw")
        shutil.rmtree(self.folder / "dcp")
        try:
            self.assertEqual(bytes(ck["w"][...]), bytes(400))
        except reshard.Error as e:
            self.assertIn(e.name, ("RSD_E_MISMATCH", "RSD_E_IO", "RSD_E_NOTFOUND"))
        with self.assertRaises(reshard.NotFoundError):
            reshard.open(self.folder / "dcp")

    def test_a_file_cut_short_is_refused_and_salvage_says_what_is_left(self):
        reshard.save(self.folder / "hf", {"a": array.array("f", [1, 2]), "b": array.array("f", [3])}, format="safetensors", shard_size=8)
        gone = next(p for p in (self.folder / "hf").iterdir() if p.name.endswith("00001-of-00002.safetensors"))
        gone.unlink()
        with self.assertRaises(reshard.Error):
            reshard.open(self.folder / "hf")
        with reshard.open(self.folder / "hf", "raw", salvage=True) as ck:
            self.assertEqual(len([t for t in ck.values() if t.health == "whole"]), 1)


class Anything(Case):
    def test_every_dtype_keeps_its_bytes(self):
        data = {name: pattern(6 * size) for name, (_, size) in DTYPES.items()}
        data["BOOL"] = bytes([0, 1, 1, 0, 1, 0])
        ck = reshard.open(self.file({name: (name, (2, 3), data[name]) for name in DTYPES}), "raw")
        for name, (ours, size) in DTYPES.items():
            self.assertEqual(ck[name].dtype, ours)
            whole, row = ck[name][...], ck[name][1]
            self.assertEqual((bytes(whole), bytes(row)), (data[name], data[name][3 * size :]), name)
            self.assertEqual((whole.dtype, whole.shape, row.shape), (ours, (2, 3), (3,)))

    def test_huge_tensors_are_read_in_part_and_refused_whole(self):
        path = self.file({"w": ("F32", (1 << 20, 1 << 18), 1 << 40)})
        ck = reshard.open(path, "raw")
        self.assertEqual(bytes(ck["w"][1 << 19, -3:]), bytes(12))
        for shape in ((1 << 62, 8), (1 << 60,), (2**63 - 1,) * 8):
            with self.assertRaises(MemoryError):
                ck._core.alloc("float64", shape)

    def test_names_are_only_names(self):
        names = ["../../etc/passwd", "/dev/null", "a\nb", "\u202eevil", "x" * 5000, "\ud800", "", ".", "a.b", "a/b", "né", "\U0001f600"]
        for name in names:
            path = self.file({name: ("U8", (2,), b"hi")})
            try:
                ck = reshard.open(path, "raw")
            except reshard.FormatError:
                continue
            self.assertEqual(bytes(ck[list(ck)[0]][...]), b"hi")
            repr(ck), repr(ck[list(ck)[0]]), ck.state_dict()

    def test_what_is_no_checkpoint_is_refused(self):
        (self.folder / "text.safetensors").write_bytes(b"hello, this is no checkpoint")
        (self.folder / "empty.pt").write_bytes(b"")
        for name in ("text.safetensors", "empty.pt", "nothing"):
            with self.assertRaises(reshard.Error):
                reshard.open(self.folder / name)
        for path in (None, 7, "a\0b"):
            with self.assertRaises((TypeError, ValueError)):
                reshard.open(path)
        with self.assertRaises(reshard.InvalidError):
            reshard.open(self.folder, framework="tf")

    @needs_numpy
    def test_strided_targets_of_numpy(self):
        import numpy as np

        ck = reshard.open(self.file({"w": ("F32", (4, 6), struct.pack("<24f", *FLOATS))}))
        want = np.arange(24, dtype="f4").reshape(4, 6)
        wide = np.zeros((4, 12), "f4")
        ck.load(["w", ("w", ...)], into=[wide[:, ::2], wide[:, 1::2]])
        np.testing.assert_array_equal(wide, want.repeat(2, axis=1))
        for target in (np.zeros((6, 4), "f4").T, np.zeros((4, 6), "f4")[::-1, ::-1], np.zeros((4, 6, 2), "f4")[..., 1]):
            ck["w"].read(into=target)
            np.testing.assert_array_equal(target, want)
        flat = np.zeros(40, "f4")
        twice = np.lib.stride_tricks.as_strided(flat, (4, 6), (20, 4))
        with self.assertRaisesRegex(ValueError, "overlap"):
            ck["w"].read(into=twice)
        with self.assertRaises(ValueError):
            ck["w"].read(into=np.broadcast_to(np.zeros(1, "f4"), (4, 6)))

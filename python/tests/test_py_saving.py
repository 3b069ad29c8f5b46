# SPDX-License-Identifier: Apache-2.0
"""Saving, converting, verifying, comparing."""

import array
import gc
import os
import pathlib
import struct
import subprocess
import sys
import weakref

import reshard
from support import DTYPES, Case

STATE = {
    "model": {"w": memoryview(bytearray(struct.pack("<12f", *range(12)))).cast("B").cast("f", (3, 4)), "b": array.array("d", [1, 2])},
    "steps": {0: {"m": array.array("q", [7])}, 3: {"m": array.array("q", [8])}},
    "list": [array.array("f", [1]), 2, "three"],
    "step": 100,
    "lr": [0.1, float("inf")],
    "big": -(2**90),
    "text": "é\n",
    "bytes": b"\0\xff",
    "nothing": None,
    "yes": True,
    "pair": (1, (2,)),
    "group": {"a": {"b": [1, {"c": 2}]}},
}


class Saving(Case):
    def test_what_was_saved_is_loaded(self):
        for name, numbers in (("dcp", str), ("all.pt", int)):
            reshard.save(self.folder / name, STATE)
            got = reshard.load(self.folder / name, "raw")
            self.assertEqual(bytes(got["model"]["w"]), bytes(STATE["model"]["w"]))
            self.assertEqual(got["model"]["w"].shape, (3, 4))
            self.assertEqual(bytes(got["steps"][numbers(3)]["m"]), struct.pack("<q", 8))
            self.assertEqual(got["list"][1:], [2, "three"])
            for key in ("step", "lr", "big", "text", "bytes", "nothing", "yes", "pair", "group"):
                self.assertEqual(got[key], STATE[key], (name, key))

    def test_the_name_says_the_format(self):
        tensors = {"w": array.array("f", [1, 2])}
        for name, given, format_ in (("a", None, "dcp"), ("b.safetensors", None, "safetensors"), ("c.pt", None, "torch"), ("d", "torch", "torch")):
            reshard.save(self.folder / name, tensors, format=given)
            self.assertEqual(reshard.open(self.folder / name, "raw").format, format_)
        with self.assertRaises(reshard.InvalidError):
            reshard.save(self.folder / "e", tensors, format="hdf5")

    def test_nothing_is_replaced_unless_asked(self):
        reshard.save(self.folder / "x", {"w": array.array("f", [1])})
        with self.assertRaises(FileExistsError) as caught:
            reshard.save(self.folder / "x", {"w": array.array("f", [2])})
        self.assertIsInstance(caught.exception, reshard.ExistsError)
        reshard.save(self.folder / "x", {"w": array.array("f", [2])}, overwrite=True)
        self.assertEqual(bytes(reshard.load(self.folder / "x", "raw")["w"]), struct.pack("f", 2))

    def test_a_layout_spreads_the_files(self):
        reshard.save(self.folder / "x", {"w": array.array("f", range(8))}, layout="mesh tp=4; * shard(0)@tp")
        (w,) = reshard.open(self.folder / "x", "raw").values()
        self.assertEqual([c.shape for c in w.chunks], [(2,)] * 4)
        self.assertEqual(len({c.file for c in w.chunks}), 4)
        with self.assertRaisesRegex(reshard.InvalidError, "line 1"):
            reshard.save(self.folder / "y", {}, layout="mesh nonsense")

    def test_what_can_not_be_saved_is_named(self):
        for x in (object(), print, 1j, memoryview(b"abcd").cast("c")):
            with self.assertRaisesRegex((reshard.InvalidError, TypeError), '"a.b"|1'):
                reshard.save(self.folder / "x", {"a": {"b": x}})
        for state in (None, [1], {1.5: array.array("f", [1])}, {"a\0b": 1}, {"\ud800": 1}):
            with self.assertRaises((TypeError, ValueError, reshard.Error)):
                reshard.save(self.folder / "x", state)
        loop = {}
        loop["again"] = loop
        with self.assertRaises(RecursionError):
            reshard.save(self.folder / "x", loop)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_what_was_read_is_saved_again(self):
        path = self.file({name: (name, (2, 3), bytes(6 * size)) for name, (_, size) in DTYPES.items()})
        reshard.save(self.folder / "again", reshard.load(path, "raw"))
        self.assertTrue(reshard.diff(path, self.folder / "again")["same"])

    def test_objects_say_their_state(self):
        class Model:
            def state_dict(self):
                return {"w": array.array("f", [5])}

        reshard.save(self.folder / "x", {"model": Model()})
        self.assertEqual(list(reshard.open(self.folder / "x", "raw")), ["model.w"])

    def test_progress_reaches_the_total_and_may_stop_it(self):
        seen = []
        state = {"w": memoryview(bytearray(1 << 20))}
        reshard.save(self.folder / "x", state, progress=lambda done, total: seen.append((done, total)))
        self.assertEqual(seen[-1][0], seen[-1][1])

        class Bar:
            n, total = 0, None

            def update(self, more):
                self.n += more

        bar = Bar()
        reshard.save(self.folder / "y", state, progress=bar)
        self.assertTrue(bar.n == bar.total > 0)

        def stop(done, total):
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            reshard.save(self.folder / "z", state, progress=stop)


class Background(Case):
    def test_tensors_may_change_once_it_returns(self):
        for stage in ("copy", "fork"):
            w = array.array("f", [1] * 1000)
            saving = reshard.save(self.folder / stage, {"w": w}, wait=False, stage=stage)
            w[:] = array.array("f", [2] * 1000)
            self.assertTrue(saving.wait())
            self.assertTrue(saving.done())
            self.assertEqual(bytes(reshard.load(self.folder / stage, "raw")["w"]), struct.pack("f", 1) * 1000)

    def test_memory_is_let_go_once_it_is_staged(self):
        w = array.array("f", [1] * 1000)
        gone = weakref.ref(w)
        saving = reshard.save_async(self.folder / "x", {"w": w})
        del w
        gc.collect()
        self.assertIsNone(gone())
        saving.wait()

    def test_dropping_it_waits(self):
        reshard.save_async(self.folder / "x", {"w": memoryview(bytearray(1 << 22))})
        self.assertTrue(reshard.verify(self.folder / "x")["ok"])

    def test_the_end_of_the_program_waits(self):
        code = f"import reshard; s = reshard.save_async({str(self.folder / 'x')!r}, {{'w': memoryview(bytearray(1 << 22))}})"
        subprocess.run([sys.executable, "-c", code], check=True)
        self.assertTrue(reshard.verify(self.folder / "x")["ok"])

    def test_an_error_comes_from_wait_or_is_shown(self):
        (self.folder / "no").write_text("a file")
        with self.assertRaises(reshard.Error):
            reshard.save_async(self.folder / "no" / "x", {"w": array.array("f", [1])}).wait()

    def test_a_forked_child_does_not_wait_for_it(self):
        saving = reshard.save_async(self.folder / "x", {"w": memoryview(bytearray(1 << 22))})
        child = os.fork()
        if child == 0:
            try:
                saving.wait()
                code = 1
            except RuntimeError:
                del saving
                code = 0
            os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        saving.wait()

    def test_canceled_saves_leave_nothing(self):
        saving = reshard.save_async(self.folder / "x", {"w": memoryview(bytearray(1 << 26))})
        saving.cancel()
        try:
            saving.wait()
        except reshard.CanceledError:
            self.assertFalse((self.folder / "x").exists())


class Commands(Case):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "x"
        reshard.save(self.path, {"model.a": array.array("f", range(8)), "model.b": array.array("f", [1]), "step": 3})

    def test_verify_finds_a_flipped_byte(self):
        report = reshard.verify(self.path)
        self.assertTrue(report["ok"] and report["checksums"])
        self.assertEqual((report["format"], report["tensors"], report["bytes"], report["damages"]), ("dcp", 2, 36, []))
        chunk = reshard.open(self.path, "raw")["model.a"].chunks[0]
        data = (self.path / chunk.file).read_bytes()
        at = data.index(struct.pack("<2f", 4, 5))
        (self.path / chunk.file).write_bytes(data[:at] + b"\1" + data[at + 1 :])
        report = reshard.verify(self.path)
        self.assertFalse(report["ok"])
        self.assertEqual(report["damages"][0]["error"], "RSD_E_CORRUPT")
        with self.assertRaises(reshard.CorruptError):
            reshard.open(self.path, "raw").load(verify=True)

    def test_verify_notes_what_is_no_damage(self):
        report = reshard.verify(pathlib.Path(__file__).parents[2] / "tests/data/golden/folders/rank_flat")
        self.assertTrue(report["ok"])
        self.assertIn("FSDP1", {n["name"]: n["note"] for n in report["notes"]}["optim.state.0.exp_avg"])

    def test_convert_takes_names_dtypes_and_patterns(self):
        out = self.folder / "out.safetensors"
        stats = reshard.convert(self.path, out, include="model.*", exclude=["*.b"], rename=lambda n: n[6:], dtype="bf16")
        self.assertEqual((stats["format"], stats["tensors"], stats["files"]), ("safetensors", 1, 1))
        (a,) = reshard.open(out, "raw").values()
        self.assertEqual((a.name, a.dtype), ("a", "bfloat16"))
        stats = reshard.convert(self.path, self.folder / "d", rename={"model.a": "q"}, dtype={"q": "f16"}, dry_run=True)
        self.assertFalse((self.folder / "d").exists())
        with reshard.open(self.path, "raw") as ck:
            left = reshard.convert(ck, self.folder / "e.safetensors")["left_out"]
        self.assertEqual([name for name, why in left], ["step"])

    def test_convert_writes_the_formats_that_save_does_not(self):
        for name, kind in (("universal", "DeepSpeed's universal form"), ("megatron", "Megatron-Core torch_dist, iteration 0")):
            out = self.folder / name / "release"
            stats = reshard.convert(self.path, out, format=name)
            with reshard.open(out) as ck:
                self.assertEqual((stats["format"], ck.kind, list(ck)), (ck.format, kind, ["model.a", "model.b"]))
        out = self.folder / "served"
        reshard.convert(self.path, out, format="sharded_state", layout="mesh tp=2; * replicate")
        self.assertEqual(len(list(out.glob("model-rank-*-part-0.safetensors"))), 2)

    def test_convert_takes_recipes(self):
        halves, joined = "model.{a,b}[x h] <-> model.w[(x + x) h]\n{*x} <-> {*x}", self.folder / "joined"
        w = memoryview(bytearray(struct.pack("<8f", *range(8)))).cast("B").cast("f", (4, 2))
        reshard.save(self.folder / "whole", {"model": {"w": w}})
        reshard.convert(self.folder / "whole", self.folder / "cut", recipe=halves, reverse=True)
        with reshard.open(self.folder / "cut", "raw") as ck:
            self.assertEqual(sorted(ck), ["model.a", "model.b"])
        (self.folder / "halves.recipe").write_text(halves)
        reshard.convert(self.folder / "cut", joined, recipe=self.folder / "halves.recipe")
        self.assertTrue(reshard.diff(self.folder / "whole", joined)["same"])
        padded = "p[(v + q:0) h] <- model.w[v h] where q = more"
        (self.folder / "config.json").write_text('{"more": 9}')
        for numbers, rows in (({"set": {"more": 3}}, 7), ({"config": self.folder / "config.json"}, 13), ({"set": {"more": 1}, "config": self.folder / "config.json"}, 5)):
            out = self.folder / f"padded-{rows}"
            reshard.convert(self.folder / "whole", out, recipe=padded, reverse=True, **numbers)
            with reshard.open(out, "raw") as ck:
                self.assertEqual(ck["p"].shape, (rows, 2))

    def test_recipes_that_come_along_are_found_by_name(self):
        adapters = {"w": array.array("f", [1]), "u": array.array("f", [2])}
        reshard.save(self.folder / "plain", adapters)
        with self.assertRaisesRegex(reshard.InvalidError, "recipe: no rule of the recipe matches tensor"):
            reshard.convert(self.folder / "plain", self.folder / "m", recipe="hf-megatron")
        listed = subprocess.run([sys.executable, "-m", "reshard", "recipe", "list"], capture_output=True, text=True, check=True).stdout
        self.assertIn("hf-megatron", listed)

    def test_mistakes_in_recipes_are_told(self):
        for recipe, more, why in (
            ("w[x -> y", {}, "recipe: line 1, column 5"),
            (self.folder / "none.recipe", {}, "none.recipe"),
            (None, {"reverse": True}, "belong to a recipe"),
            ("a -> b", {"config": self.folder / "no.json"}, "no.json"),
        ):
            with self.assertRaisesRegex(reshard.InvalidError, why):
                reshard.convert(self.path, self.folder / "y", recipe=recipe, **more)
            self.assertFalse((self.folder / "y").exists())

    def test_convert_says_what_is_wrong(self):
        with self.assertRaises(reshard.InvalidError):
            reshard.convert(self.path, self.folder / "y", dtype="f17")
        with self.assertRaises(reshard.ExistsError):
            reshard.convert(self.path, self.path)
        with self.assertRaises(reshard.Error):
            reshard.convert(self.path, self.folder / "y", rename=lambda n: "same")
        with self.assertRaises(ZeroDivisionError):
            reshard.convert(self.path, self.folder / "y", rename=lambda n: 1 / 0)

    def test_diff_returns_data(self):
        other = self.folder / "other.pt"
        reshard.save(other, {"model.a": array.array("f", [9, *range(1, 8)]), "model.b": array.array("f", [1]), "step": 4})
        seen = []
        found = reshard.diff(self.path, other, progress=lambda done, total: seen.append(done))
        self.assertFalse(found["same"])
        kinds = {(d["kind"], d["what"]) for d in found["differences"]}
        self.assertEqual(kinds, {("tensor", "values"), ("object", "value")})
        self.assertTrue(seen)
        self.assertTrue(reshard.diff(self.path, self.path, exclude="step")["same"])
        self.assertTrue(reshard.diff(self.path, other, exclude=["step"], atol=9)["same"])

    def test_plan_returns_data(self):
        report = reshard.plan(self.path, "mesh tp=2; *.a shard(0)@tp; * replicate")
        self.assertEqual([r["needs"] for r in report["ranks"]], [20, 20])
        self.assertEqual(report["total"]["needs"], 40)

    def test_the_tool_s_errors_are_the_library_s(self):
        with self.assertRaises(reshard.NotFoundError):
            reshard.plan(self.folder / "none", "mesh tp=2; * replicate")
        with self.assertRaises(reshard.InvalidError):
            reshard.plan(self.path, "mesh tp=")
        with self.assertRaises(reshard.InvalidError):
            reshard.diff(self.path, self.path, rename="nonsense")

    def test_the_command_is_the_tool(self):
        done = subprocess.run([sys.executable, "-m", "reshard", "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, f"reshard {reshard.__version__}\n")

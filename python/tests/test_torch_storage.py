# SPDX-License-Identifier: Apache-2.0
"""The storage classes in one process: objects, damage, odd tensors and planners, other formats, the folder."""

import array
import functools
import io
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import unittest
import warnings

from support import Case, installed, needs_safetensors, needs_torch

if installed("torch"):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension, ZStandard
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from torch.distributed.checkpoint.metadata import TensorProperties

    import reshard
    import reshard.torch
    from reshard.torch import StorageReader, StorageWriter

    class Flip(StreamTransformExtension):
        """Flips all bits: an extension that the library does not know."""

        @staticmethod
        def registry_name():
            return "test.flip"

        @staticmethod
        def from_descriptor(version):
            return Flip()

        def get_descriptor(self):
            return "test.flip/1"

        def transform_to(self, output):
            class Writer(io.RawIOBase):
                def write(self, b):
                    return output.write(bytes(x ^ 255 for x in bytes(b)))

                def close(self):
                    output.close()

            return Writer()

        def transform_from(self, input):  # pylint: disable=redefined-builtin
            return io.BytesIO(bytes(x ^ 255 for x in input.read()))

    class Subclass(torch.Tensor):
        pass

    class Pairwise(DefaultLoadPlanner):
        """Wants each tensor committed before it resolves the next, as Megatron's for FP8 does."""

        pending = None

        def resolve_tensor(self, read_item):
            assert self.pending is None
            self.pending = read_item
            return super().resolve_tensor(read_item)

        def commit_tensor(self, read_item, tensor):
            assert self.pending is read_item
            self.pending = None


def setUpModule():
    """torch logs each failure to read metadata before it raises."""
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def tearDownModule():
    logging.disable(logging.NOTSET)


class Custom:
    """An object that no checkpoint needs."""

    def __eq__(self, other):
        return isinstance(other, Custom)


def save(state, path, kind=None, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, storage_writer=(kind or StorageWriter)(path, **more.pop("options", {})), no_dist=True, **more)


def load(state, path, kind=None, planner=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, storage_reader=(kind or StorageReader)(path, **options), planner=planner, no_dist=True)
    return state


def child(code, *args, **env):
    """Runs Python code in a new process, which must print what is returned."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, args)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else f"exit {done.returncode}: {done.stderr[-2000:]}"


@needs_torch
class Objects(Case):
    def test_values_and_containers_are_loaded(self):
        save({"o": {"lr": 0.1, "betas": (0.9, 0.95), "names": ["a"], "t": torch.ones(2)}, "n": 3}, self.folder)
        got = load({"o": {"lr": 0, "betas": 0, "names": 0, "t": torch.zeros(2)}, "n": 0}, self.folder)
        self.assertEqual((got["o"]["lr"], got["o"]["betas"], got["n"]), (0.1, (0.9, 0.95), 3))

    def test_an_object_of_an_unknown_class_is_refused_by_name(self):
        for kind in (StorageWriter, dcp.FileSystemWriter):
            save({"thing": Custom()}, self.folder / kind.__name__, kind)
            with self.assertRaises(dcp.CheckpointException) as caught:
                load({"thing": None}, self.folder / kind.__name__)
            for word in ("test_torch_storage.Custom", '"thing"', "trust_objects=True", "add_safe_globals"):
                self.assertIn(word, str(caught.exception))

    def test_an_object_is_not_unpickled_before_it_is_allowed(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(folder / "ran"),)

        folder = self.folder
        save({"thing": Evil()}, folder / "c")
        with self.assertRaises(dcp.CheckpointException):
            load({"thing": None}, folder / "c")
        self.assertFalse((folder / "ran").exists())
        load({"thing": None}, folder / "c", trust_objects=True)
        self.assertTrue((folder / "ran").exists())

    def test_trusted_objects_are_loaded(self):
        save({"thing": Custom()}, self.folder)
        self.assertEqual(load({"thing": None}, self.folder, trust_objects=True)["thing"], Custom())

    def test_classes_made_safe_are_loaded(self):
        save({"thing": Custom()}, self.folder)
        with torch.serialization.safe_globals([Custom]):
            self.assertEqual(load({"thing": None}, self.folder)["thing"], Custom())

    def test_metadata_run_no_code(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(folder / "ran"),)

        folder = self.folder
        (folder / "c").mkdir()
        (folder / "c" / ".metadata").write_bytes(pickle.dumps(Evil()))
        with self.assertRaises(dcp.CheckpointException):
            load({"w": torch.zeros(1)}, folder / "c")
        self.assertFalse((folder / "ran").exists())


@needs_torch
class Tensors(Case):
    def test_odd_tensors_are_saved_as_stock_reads_them(self):
        base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
        state = {
            "grad": torch.ones(3, requires_grad=True) * 2,
            "parameter": torch.nn.Parameter(torch.ones(2)),
            "transposed": base.t(),
            "sliced": base[1:3, ::2],
            "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
            "scalar": torch.tensor(7),
            "empty": torch.zeros(0, 4),
            "conj": torch.tensor([1 + 2j]).conj(),
            "neg": torch.tensor([1 + 2j]).conj().imag,
            "last": torch.ones(1, 3, 2, 2).to(memory_format=torch.channels_last),
            "half": torch.ones(2, dtype=torch.float8_e4m3fn),
            "bool": torch.tensor([True, False]),
        }
        save(state, self.folder)
        for kind in (dcp.FileSystemReader, StorageReader):
            got = load({k: torch.zeros(v.shape, dtype=v.dtype) for k, v in state.items()}, self.folder, kind)
            for name, tensor in state.items():
                with self.subTest(name=name, kind=kind.__name__):
                    self.assertTrue(torch.equal(got[name].float() if name == "half" else got[name], tensor.float() if name == "half" else tensor.detach()))

    def test_a_view_is_saved_without_the_rest_of_its_storage(self):
        save({"w": torch.zeros(1 << 20)[:4]}, self.folder)
        self.assertLess((self.folder / "__0_0.distcp").stat().st_size, 1 << 16)

    def test_a_subclass_is_saved_and_loaded(self):
        save({"w": torch.arange(4.0).as_subclass(Subclass)}, self.folder / "c")
        with torch.serialization.safe_globals([Subclass]):
            got = load({"w": torch.zeros(4)}, self.folder / "c", dcp.FileSystemReader)
        self.assertTrue(torch.equal(got["w"], torch.arange(4.0)))
        save({"w": torch.arange(4.0)}, self.folder / "d")
        got = load({"w": torch.zeros(4).as_subclass(Subclass)}, self.folder / "d")
        self.assertEqual(got["w"].tolist(), [0, 1, 2, 3])

    def test_dtypes_are_cast_as_copy_does(self):
        values = torch.tensor([1.5, -2.75, 3e5, 0.1])
        save({"w": values}, self.folder)
        for dtype in (torch.bfloat16, torch.float64, torch.int32, torch.complex64):
            got = load({"w": torch.zeros(4, dtype=dtype)}, self.folder)["w"]
            self.assertTrue(torch.equal(got, torch.zeros(4, dtype=dtype).copy_(values)), dtype)

    def test_two_names_of_one_tensor_are_loaded(self):
        save({"a": torch.ones(4), "b": torch.ones(4)}, self.folder)
        one = torch.zeros(4)
        load({"a": one, "b": one}, self.folder)
        self.assertEqual(one.tolist(), [1] * 4)

    def test_strided_targets_are_filled(self):
        save({"w": torch.arange(6.0).reshape(2, 3)}, self.folder)
        memory = torch.zeros(3, 4)
        load({"w": memory.t()[:2]}, self.folder)
        self.assertEqual(memory[:, :2].tolist(), [[0, 3], [1, 4], [2, 5]])
        self.assertEqual(memory[:, 2:].abs().sum(), 0)

    def test_autograd_sees_that_a_loaded_tensor_changed(self):
        save({"w": torch.ones(4)}, self.folder)
        w = torch.nn.Parameter(torch.zeros(4))
        version = w._version
        load({"w": w}, self.folder)
        self.assertGreater(w._version, version)

    def test_a_planner_that_commits_in_pairs_is_served(self):
        save({"a": torch.ones(4), "b": torch.ones(2, 2) * 2}, self.folder)
        got = load({"a": torch.zeros(4), "b": torch.zeros(2, 2)}, self.folder, planner=Pairwise())
        self.assertEqual((got["a"].sum(), got["b"].sum()), (4, 8))

    def test_a_tensor_of_another_dtype_than_planned_is_recorded_as_it_is(self):
        for dtype in (torch.float32, torch.bfloat16):
            planner = DefaultSavePlanner(enable_plan_caching=True)
            save({"w": torch.ones(4, dtype=dtype)}, self.folder, planner=planner)
        self.assertEqual(reshard.open(self.folder)["w"].dtype, "bfloat16")
        self.assertEqual(load({"w": torch.zeros(4)}, self.folder)["w"].sum(), 4)


@needs_torch
class Damage(Case):
    def setUp(self):
        super().setUp()
        save({"w": torch.arange(4096.0)}, self.folder)

    def flip(self):
        path = self.folder / "__0_0.distcp"
        data = bytearray(path.read_bytes())
        data[data.index(torch.arange(4000.0, 4096.0).numpy().tobytes())] ^= 1
        path.write_bytes(data)

    def test_a_flipped_bit_is_refused(self):
        self.flip()
        with self.assertRaises(dcp.CheckpointException) as caught:
            load({"w": torch.zeros(4096)}, self.folder)
        self.assertIn("__0_0.distcp", str(caught.exception))

    def test_a_flipped_bit_is_read_if_checks_are_off(self):
        self.flip()
        self.assertFalse(torch.equal(load({"w": torch.zeros(4096)}, self.folder, verify=False)["w"], torch.arange(4096.0)))

    def test_a_flipped_bit_in_a_file_of_stock_torch_is_refused(self):
        save({"w": torch.arange(4096.0)}, self.folder, dcp.FileSystemWriter)
        self.flip()
        with self.assertRaises(dcp.CheckpointException):
            load({"w": torch.zeros(4096)}, self.folder)

    def test_a_missing_file_is_named(self):
        (self.folder / "__0_0.distcp").unlink()
        with self.assertRaises(dcp.CheckpointException) as caught:
            load({"w": torch.zeros(4096)}, self.folder)
        self.assertIn("__0_0.distcp", str(caught.exception))

    def test_a_missing_chunk_is_refused(self):
        with open(self.folder / ".metadata", "r+b") as f:
            metadata = pickle.load(f)
            metadata.state_dict_metadata["w"].size = torch.Size([8192])
            f.seek(0)
            f.write(pickle.dumps(metadata))
            f.truncate()
        for load_it in (load, lambda state, path: reshard.torch.load(state, path)):
            with self.assertRaises((dcp.CheckpointException, reshard.Error)) as caught:
                load_it({"w": torch.zeros(8192)}, self.folder)
            self.assertIn('tensor "w": chunks: the boxes leave a hole', str(caught.exception))

    def test_missing_keys_and_wrong_sizes_are_refused(self):
        for state, word in (({"x": torch.zeros(1)}, "Missing key"), ({"w": torch.zeros(5)}, "Size mismatch")):
            with self.assertRaises(dcp.CheckpointException) as caught:
                load(state, self.folder)
            self.assertIn(word, str(caught.exception))


@needs_torch
class Folder(Case):
    def files(self):
        return sorted(os.listdir(self.folder))

    def test_files_of_others_stay(self):
        (self.folder / "meta.pt").write_text("x")
        (self.folder / "sub").mkdir()
        for step in range(3):
            save({"w": torch.full((4,), float(step))}, self.folder)
        self.assertEqual(load({"w": torch.zeros(4)}, self.folder)["w"].tolist(), [2] * 4)
        self.assertTrue({"meta.pt", "sub"} <= set(self.files()))

    def test_files_of_the_save_before_last_are_removed(self):
        for _ in range(4):
            save({"w": torch.zeros(4)}, self.folder)
        self.assertEqual([n for n in self.files() if n.endswith(".distcp")], ["__0_2.distcp", "__0_3.distcp"])

    def test_an_existing_checkpoint_is_kept_without_overwrite(self):
        save({"w": torch.ones(4)}, self.folder)
        with self.assertRaises(dcp.CheckpointException) as caught:
            save({"w": torch.zeros(4)}, self.folder, options={"overwrite": False})
        self.assertIn("Checkpoint already exists", str(caught.exception))
        self.assertEqual(load({"w": torch.zeros(4)}, self.folder)["w"].sum(), 4)

    def test_a_process_killed_before_the_publication_leaves_the_old_checkpoint(self):
        save({"w": torch.ones(4)}, self.folder)
        code = """
import os, sys, signal, torch, torch.distributed.checkpoint as dcp
from reshard.torch import StorageWriter
class Killed(StorageWriter):
    def finish(self, metadata, results):
        os.kill(os.getpid(), signal.SIGKILL)
dcp.save({"w": torch.zeros(4)}, storage_writer=Killed(sys.argv[1]), no_dist=True)
"""
        self.assertIn(f"exit {-signal.SIGKILL}", child(code, self.folder))
        self.assertIn("__0_1.distcp", self.files())
        self.assertEqual(load({"w": torch.zeros(4)}, self.folder)["w"].sum(), 4)
        save({"w": torch.ones(4) * 2}, self.folder)
        self.assertNotIn("__0_1.distcp", self.files())

    def test_a_full_disk_fails_the_save_and_keeps_the_old_checkpoint(self):
        save({"w": torch.ones(4)}, self.folder)
        code = """
import resource, sys, torch, torch.distributed.checkpoint as dcp
from reshard.torch import StorageWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    dcp.save({"w": torch.zeros(1 << 20)}, storage_writer=StorageWriter(sys.argv[1], thread_count=2), no_dist=True)
except dcp.CheckpointException as e:
    print("refused" if "__0_1.distcp" in str(e) else e)
"""
        self.assertEqual(child(code, self.folder), "refused")
        self.assertEqual(load({"w": torch.zeros(4)}, self.folder)["w"].sum(), 4)

    def test_a_publication_without_all_data_is_refused(self):
        class Forgetful(StorageWriter):
            def finish(self, metadata, results):
                super().finish(metadata, [part[:-1] for part in results])

        with self.assertRaises(dcp.CheckpointException) as caught:
            save({"a": torch.ones(4), "b": torch.ones(4)}, self.folder, Forgetful)
        self.assertIn("2 chunks and objects were planned, but ranks wrote only 1", str(caught.exception))
        self.assertNotIn(".metadata", self.files())

    def test_no_empty_files_are_made(self):
        save({"w": torch.ones(4)}, self.folder, options={"thread_count": 4})
        self.assertEqual([n for n in self.files() if n.endswith(".distcp")], ["__0_0.distcp"])

    def test_ids_are_those_of_the_writer_and_the_reader(self):
        writer, reader = StorageWriter(self.folder), StorageReader(self.folder)
        dcp.save({"w": torch.ones(4)}, storage_writer=writer, no_dist=True)
        meta = reader.read_metadata().storage_meta
        self.assertEqual((meta.checkpoint_id, meta.save_id, meta.load_id), (writer.checkpoint_id, writer.save_id, reader.load_id))
        before = writer.save_id
        writer.reset(self.folder / "other")
        self.assertNotEqual(writer.save_id, before)
        self.assertEqual(writer.checkpoint_id, self.folder / "other")

    def test_metadata_are_those_of_stock_torch(self):
        save({"a": {"w": torch.ones(4)}, "l": [torch.ones(2), 3]}, self.folder)
        stock, ours = dcp.FileSystemReader(self.folder).read_metadata(), StorageReader(self.folder).read_metadata()
        self.assertEqual(stock.state_dict_metadata, ours.state_dict_metadata)
        self.assertEqual(stock.planner_data, ours.planner_data)
        self.assertEqual(stock.storage_data, dict(ours.storage_data))
        self.assertEqual(pickle.loads(pickle.dumps(ours)).storage_data, stock.storage_data)

    def test_metadata_that_reshard_can_not_read_are_told(self):
        class Odd(DefaultSavePlanner):
            def create_global_plan(self, all_plans):
                plans, metadata = super().create_global_plan(all_plans)
                metadata.planner_data["odd"] = Custom()
                return plans, metadata

        with self.assertWarnsRegex(UserWarning, 'was saved without checksums, and reshard can.t read it: .*"[^"]*Custom"'):
            dcp.save({"w": torch.ones(4)}, storage_writer=StorageWriter(self.folder), planner=Odd(), no_dist=True)
        self.assertEqual(load({"w": torch.zeros(4)}, self.folder, dcp.FileSystemReader)["w"].sum(), 4)

    def test_metadata_of_python_3_11_2_are_read(self):
        """It pickles a member of an enum as getattr(class, name)."""
        kind = type(TensorProperties.__getstate__(TensorProperties())[3])
        kind.__reduce_ex__ = lambda self, protocol: (getattr, (type(self), self.name))
        self.addCleanup(delattr, kind, "__reduce_ex__")
        state = {"a": torch.ones(4), "b": torch.ones(2)}
        for writer in (StorageWriter, dcp.FileSystemWriter):
            path = self.folder / writer.__name__
            save(state, path, writer)
            self.assertIn(b"getattr", (path / ".metadata").read_bytes())
            self.assertTrue(reshard.verify(path)["ok"])
            self.assertEqual(load({"a": torch.zeros(4), "b": torch.zeros(2)}, path)["b"].sum(), 2)

    def test_options_that_are_no_numbers_are_refused(self):
        for name in ("threads", "max_memory"):
            with self.assertRaisesRegex(reshard.InvalidError, name):
                StorageWriter(self.folder, **{name: "a"})

    def test_classes_pickle(self):
        writer, reader = StorageWriter(self.folder, sync_files=False), StorageReader(self.folder)
        dcp.save({"w": torch.ones(4)}, storage_writer=writer, no_dist=True)
        reader.read_metadata()
        for x in (writer, reader):
            self.assertEqual(pickle.loads(pickle.dumps(x)).path, x.path)
        dcp.save({"w": torch.ones(4) * 2}, storage_writer=pickle.loads(pickle.dumps(writer)), no_dist=True)
        self.assertEqual(load({"w": torch.zeros(4)}, self.folder)["w"].sum(), 8)

    def test_readers_that_keep_metadata_are_served(self):
        class Cached(StorageReader):
            known = None

            def read_metadata(self, *args, **kwargs):
                Cached.known = Cached.known or super().read_metadata(*args, **kwargs)
                return Cached.known

        save({"w": torch.ones(4)}, self.folder)
        for _ in range(2):
            self.assertEqual(load({"w": torch.zeros(4)}, self.folder, Cached)["w"].sum(), 4)

    def test_writers_that_write_files_in_their_own_way_are_served(self):
        class Own(StorageWriter):
            def write_data(self, plan, planner):
                return dcp.FileSystemWriter.write_data(self, plan, planner)

        for step in (1, 2):
            save({"w": torch.ones(4) * step}, self.folder, Own)
            self.assertEqual(load({"w": torch.zeros(4)}, self.folder)["w"].sum(), 4 * step)


@needs_torch
class Sent(unittest.TestCase):
    def test_results_are_sent_as_places_of_the_coordinators_items(self):
        from torch.distributed.checkpoint.planner import SavePlan

        from reshard.torch import _sent

        planner = DefaultSavePlanner()
        planner.set_up_planner({f"w{i}": torch.zeros(2) for i in range(100)}, is_coordinator=True)
        out, kept = _sent.save_plan(planner.create_local_plan(), 0)
        given = _sent.kept_plans([SavePlan(pickle.loads(pickle.dumps(out)).items)])
        plan = pickle.loads(pickle.dumps(given[0]))
        self.assertEqual(len(plan.items), 100)
        places = array.array("q", range(200)).tobytes()
        results = _sent.Results(plan, kept, "__0_0.distcp", places, None, b"receipt", {})
        data = pickle.dumps(results)
        self.assertLess(len(data), len(places) + 500)
        self.assertEqual(pickle.loads(data), list(results))
        self.assertEqual([r.index.fqn for r in results], [item.index.fqn for item in kept.plan.items])
        cached = _sent.Results(plan, None, "__0_0.distcp", places, None, b"", {})
        del given
        self.assertEqual(pickle.loads(pickle.dumps(cached)), list(cached))


@needs_torch
class Extensions(Case):
    @unittest.skipUnless(installed("zstandard"), "zstandard is not installed")
    def test_zstandard_is_shared_with_stock_torch(self):
        for writes, reads in ((dcp.FileSystemWriter, StorageReader), (StorageWriter, dcp.FileSystemReader), (StorageWriter, StorageReader)):
            path = self.folder / f"{writes.__name__}-{reads.__name__}"
            save({"w": torch.ones(1 << 16), "o": [1]}, path, writes, options={"_extensions": [ZStandard()]})
            self.assertLess((path / "__0_0.distcp").stat().st_size, 1 << 15)
            got = load({"w": torch.zeros(1 << 16), "o": 0}, path, reads)
            self.assertEqual((got["w"].sum(), got["o"]), (1 << 16, [1]))

    def test_unknown_extensions_are_applied_by_torch(self):
        registry = ExtensionRegistry()
        registry.register(Flip)
        for writes, reads in ((dcp.FileSystemWriter, StorageReader), (StorageWriter, dcp.FileSystemReader), (StorageWriter, StorageReader)):
            path = self.folder / f"{writes.__name__}-{reads.__name__}"
            save({"w": torch.arange(4.0), "o": [1]}, path, writes, options={"_extensions": [Flip()]})
            got = load({"w": torch.zeros(4), "o": 0}, path, reads, _extension_registry=registry)
            self.assertEqual((got["w"].tolist(), got["o"]), ([0, 1, 2, 3], [1]))

    def test_objects_behind_unknown_extensions_are_looked_at(self):
        registry = ExtensionRegistry()
        registry.register(Flip)
        save({"o": Custom()}, self.folder, options={"_extensions": [Flip()]})
        with self.assertRaises(dcp.CheckpointException) as caught:
            load({"o": 0}, self.folder, _extension_registry=registry)
        self.assertIn("Custom", str(caught.exception))


@needs_torch
class Formats(Case):
    def test_torch_save_files_are_read(self):
        torch.save({"model": {"w": torch.ones(2, 3)}, "step": 5}, self.folder / "x.pt")
        got = load({"model": {"w": torch.zeros(2, 3)}, "step": 0}, self.folder / "x.pt")
        self.assertEqual((got["model"]["w"].sum(), got["step"]), (6, 5))

    @needs_safetensors
    def test_hugging_face_folders_are_read_under_new_names(self):
        from safetensors.torch import save_file

        for i in (1, 2):
            save_file({f"model.l{i}.weight": torch.full((2, 2), float(i))}, self.folder / f"model-0000{i}-of-00002.safetensors")
        index = {"metadata": {}, "weight_map": {f"model.l{i}.weight": f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for rename in ({r"^model\.": "", "never": "x"}, lambda name: name.removeprefix("model."), [(r"^model\.(.*)", r"\1")]):
            got = load({"l1.weight": torch.zeros(2, 2), "l2.weight": torch.zeros(2, 2)}, self.folder, rename=rename)
            self.assertEqual((got["l1.weight"].sum(), got["l2.weight"].sum()), (4, 8))

    def test_two_names_that_become_one_are_refused(self):
        save({"a1": torch.ones(1), "a2": torch.ones(1)}, self.folder)
        with self.assertRaises(dcp.CheckpointException) as caught:
            load({"a": torch.ones(1)}, self.folder, rename={r"\d": ""})
        self.assertIn("renamed", str(caught.exception))

    @needs_safetensors
    def test_safetensors_of_stock_writers_are_read(self):
        save({"w": torch.arange(6.0)}, self.folder, dcp.HuggingFaceStorageWriter)
        got = load({"w": torch.zeros(6)}, self.folder, reshard.torch.HuggingFaceReader, thread_count=2)
        self.assertEqual(got["w"].tolist(), [0, 1, 2, 3, 4, 5])


    @needs_safetensors
    def test_rank_files_of_an_earlier_save_are_not_mixed_with_a_new_one(self):
        from safetensors.torch import save_file

        writer = functools.partial(reshard.torch.HuggingFaceWriter, save_distributed=True)
        save({"w": torch.zeros(6)}, self.folder, writer)
        (self.folder / "shard-00001-model-00001-of-00001.safetensors").rename(self.folder / "shard-00002-model-00001-of-00001.safetensors")
        save_file({"w": torch.zeros(6), "v": torch.zeros(1)}, self.folder / "shard-00003-model-00001-of-00001.safetensors")
        save_file({"w": torch.zeros(6)}, self.folder / "adapter.safetensors")
        save({"w": torch.ones(6)}, self.folder, writer)
        names = sorted(p.name for p in self.folder.iterdir())
        self.assertEqual(names, ["adapter.safetensors", *(f"shard-0000{i}-model-00001-of-00001.safetensors" for i in (1, 3))])


@needs_torch
class Installed(Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(reshard.torch.uninstall)

    def test_names_are_replaced_and_restored(self):
        from torch.distributed.checkpoint import _storage_utils, filesystem, format_utils, state_dict_saver, staging

        stock = filesystem.FileSystemReader, filesystem.FileSystemWriter
        reshard.torch.install()
        for module in (dcp, _storage_utils, filesystem, format_utils):
            self.assertIs(module.FileSystemReader, StorageReader)
            self.assertIs(module.FileSystemWriter, StorageWriter)
        self.assertIs(state_dict_saver.DefaultStager, reshard.torch.Stager)
        self.assertIs(dcp.HuggingFaceStorageReader, reshard.torch.HuggingFaceReader)
        self.assertIs(dcp.HuggingFaceStorageWriter, reshard.torch.HuggingFaceWriter)
        reshard.torch.uninstall()
        for module in (dcp, _storage_utils, filesystem, format_utils):
            self.assertEqual((module.FileSystemReader, module.FileSystemWriter), stock)
        self.assertIs(state_dict_saver.DefaultStager, staging.DefaultStager)

    def test_trust_is_given_by_install(self):
        save({"thing": Custom()}, self.folder)
        reshard.torch.install(trust_objects=True)
        state = {"thing": None}
        dcp.load(state, checkpoint_id=self.folder, no_dist=True)
        self.assertEqual(state["thing"], Custom())
        reshard.torch.install()
        with self.assertRaises(dcp.CheckpointException):
            dcp.load(state, checkpoint_id=self.folder, no_dist=True)

    def test_torchs_tools_go_through_ours(self):
        reshard.torch.install()
        dcp.save({"a": {"w": torch.ones(4)}}, checkpoint_id=self.folder / "c", no_dist=True)
        self.assertTrue((self.folder / "c" / ".reshard-sums-__0_0").exists())
        dcp_to_torch_save(self.folder / "c", self.folder / "x.pt")
        self.assertEqual(torch.load(self.folder / "x.pt")["a"]["w"].sum(), 4)

    def test_staged_tensors_may_change_and_buffers_are_used_again(self):
        from torch.distributed.checkpoint.staging import StagingOptions

        options = StagingOptions(False, False, False, False)
        w, places = torch.ones(1024), []
        for step in (1, 2):
            stager = reshard.torch.Stager(options)
            staged = stager.stage({"w": w.fill_(step)})
            w.zero_()
            self.assertEqual(staged["w"].sum(), 1024 * step)
            places.append(staged["w"].data_ptr())
            stager.close()
        self.assertEqual(places[0], places[1])

    def test_overlapping_saves_get_buffers_of_their_own(self):
        from torch.distributed.checkpoint.staging import StagingOptions

        w = torch.ones(1024)
        one, two = (reshard.torch.Stager(StagingOptions(False, False, False, False)) for _ in range(2))
        self.assertNotEqual(one.stage({"w": w})["w"].data_ptr(), two.stage({"w": w})["w"].data_ptr())
        one.close()
        two.close()

    def test_the_variable_reaches_processes_that_import_torch_later(self):
        code = "import reshard._startup, torch.distributed.checkpoint as dcp; print(dcp.FileSystemReader.__module__)"
        self.assertEqual(child(code), "reshard.torch._reader")

    def test_the_start_up_file_imports_nothing_unless_it_is_told_to(self):
        import site

        places = [os.path.join(p, "reshard.pth") for p in [*site.getsitepackages(), *sys.path]]
        if not any(map(os.path.exists, places)):
            self.skipTest("the package is not installed")
        code = "import sys; print('reshard' in sys.modules, 'torch' in sys.modules)"
        self.assertEqual(child(code, RESHARD_TORCH="0"), "False False")
        self.assertEqual(child(code, RESHARD_TORCH="1"), "True False")

    def test_async_saves_in_a_process_send_the_writer_and_publish(self):
        code = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from reshard.torch import StorageWriter, StorageReader
if __name__ == "__main__":
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for step in (1, 2):
        w = torch.ones(1024) * step
        saving = dcp.async_save({"w": w}, storage_writer=StorageWriter(sys.argv[1]), async_checkpointer_type=AsyncCheckpointerType.PROCESS)
        w.zero_()
        saving.result()
    got = {"w": torch.zeros(1024)}
    dcp.load(got, storage_reader=StorageReader(sys.argv[1]))
    print(got["w"].sum().item(), sorted(n for n in os.listdir(sys.argv[1]) if n.endswith("distcp")))
    dist.destroy_process_group()
"""
        script = self.folder / "script.py"
        script.write_text(code)
        run = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        self.assertEqual(child(run, script, self.folder / "c"), "2048.0 ['__0_0.distcp', '__0_1.distcp']")


if __name__ == "__main__":
    unittest.main()

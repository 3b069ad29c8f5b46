# SPDX-License-Identifier: Apache-2.0
"""The storage classes on four ranks: what stock torch writes ours reads, what ours writes stock torch reads, whatever the
placements, meshes and numbers of ranks on both sides."""

import dataclasses
import math
import pickle
import unittest
import warnings

from support import Case, installed, needs_torch

if installed("torch"):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from rank_pool import Ranks
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard

    from reshard import MismatchError
    from reshard.torch import StorageReader, StorageWriter, install, uninstall

SIDES = [("stock", "ours"), ("ours", "stock"), ("ours", "ours")]


def writer(side, path, **more):
    return (StorageWriter if side == "ours" else dcp.FileSystemWriter)(path, **more)


def reader(side, path):
    return (StorageReader if side == "ours" else dcp.FileSystemReader)(path)


def whole(shape, dtype=None):
    return torch.arange(1, math.prod(shape) + 1, dtype=dtype or torch.float32).reshape(shape)


def placement(text):
    kinds = {"R": Replicate(), "S0": Shard(0), "S1": Shard(1)}
    return kinds[text] if text in kinds else _StridedShard(0, split_factor=int(text[-1]))


def dtensor(full, mesh, words):
    """The shards of `full`; of a strided one, first cut by the second axis, as FSDP over tensor parallelism does."""
    if not words[0].startswith("SS"):
        return distribute_tensor(full, mesh, [placement(w) for w in words])
    i, j = mesh.get_coordinate()
    n, m = mesh.mesh.shape
    step = full.shape[0] // (n * m)
    at = j * n * step + i * step
    placements = [placement(w) for w in words]
    return DTensor.from_local(full[at : at + step].clone(), mesh, placements, run_check=False, shape=full.shape, stride=full.stride())


_groups = {}


def on_mesh(rank, shape):
    """(mesh, group) of the first ranks; the ranks beyond get None. All ranks must call it."""
    if shape not in _groups:
        ranks = list(range(math.prod(shape)))
        group = dist.new_group(ranks)
        _groups[shape] = DeviceMesh("cpu", torch.tensor(ranks).reshape(shape), _init_backend=True), group, len(ranks)
    mesh, group, n = _groups[shape]
    return (mesh, group) if rank < n else (None, None)


def move(rank, folder, before, after, shape, sides):
    """Saves with one mesh and placements, loads with others; whether what is loaded is right."""
    warnings.simplefilter("ignore")
    full, good = whole(shape), True
    sources, targets = on_mesh(rank, before[0]), on_mesh(rank, after[0])
    for number, (writes, reads) in enumerate(sides):
        path = f"{folder}/{number}"
        if sources[0]:
            dcp.save({"model": {"w": dtensor(full, sources[0], before[1])}}, storage_writer=writer(writes, path), process_group=sources[1])
        dist.barrier()
        if targets[0]:
            state = {"model": {"w": dtensor(torch.zeros(shape), targets[0], after[1])}}
            dcp.load(state, storage_reader=reader(reads, path), process_group=targets[1])
            good = good and torch.equal(state["model"]["w"].to_local(), dtensor(full, targets[0], after[1]).to_local())
        dist.barrier()
    return good


def sharded(rank, folder, before, after, sides):
    warnings.simplefilter("ignore")
    full, good = whole((8, 8)), True

    def make(dim, fill):
        spec = ChunkShardingSpec(dim=dim, placements=[f"rank:{r}/cpu" for r in range(4)])
        t = sharded_tensor.zeros(spec, 8, 8)
        for shard in t.local_shards():
            part = full
            for d, (o, n) in enumerate(zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes)):
                part = part.narrow(d, o, n)
            if fill:
                shard.tensor.copy_(part)
            else:
                good_parts.append((shard.tensor, part))
        return t

    for number, (writes, reads) in enumerate(sides):
        good_parts = []
        dcp.save({"w": make(before, True)}, storage_writer=writer(writes, f"{folder}/{number}"))
        dcp.load({"w": make(after, False)}, storage_reader=reader(reads, f"{folder}/{number}"))
        good = good and good_parts and all(torch.equal(a, b) for a, b in good_parts)
    return bool(good)


def everything(rank, folder, sides):
    """Plain tensors, nested containers, bytes and values besides shards."""
    warnings.simplefilter("ignore")
    mesh, _ = on_mesh(rank, (4,))
    results = []
    for number, (writes, reads) in enumerate(sides):

        def state(fill):
            return {
                "model": {"w": dtensor(whole((9, 4)) if fill else torch.zeros(9, 4), mesh, ["S0"]), "b": whole((3,)) if fill else torch.zeros(3)},
                "optim": [{"lr": 0.5 if fill else 0.0, "m": whole((2, 2), torch.float64) if fill else torch.zeros(2, 2, dtype=torch.float64)}],
                "name": "run" if fill else "",
                "raw": b"\x00\xff" if fill else b"",
            }

        dcp.save(state(True), storage_writer=writer(writes, f"{folder}/{number}"))
        got = state(False)
        dcp.load(got, storage_reader=reader(reads, f"{folder}/{number}"))
        want = state(True)
        results.append(
            torch.equal(got["model"]["w"].to_local(), want["model"]["w"].to_local())
            and torch.equal(got["model"]["b"], want["model"]["b"])
            and torch.equal(got["optim"][0]["m"], want["optim"][0]["m"])
            and (got["optim"][0]["lr"], got["name"], got["raw"]) == (0.5, "run", b"\x00\xff")
        )
    return all(results)


def own_metadata(rank, folder, words):
    """Saved without collectives: every rank has its own value; then loaded with other placements."""
    warnings.simplefilter("ignore")
    mesh, _ = on_mesh(rank, (4,))
    full = whole((8, 8))
    dcp.save({"w": dtensor(full, mesh, ["S0"]), "r": torch.full((2,), float(rank)), "seed": rank}, storage_writer=StorageWriter(folder), use_collectives=False)
    got = {"w": dtensor(torch.zeros(8, 8), mesh, [words]), "r": torch.zeros(2), "seed": -1}
    dcp.load(got, storage_reader=StorageReader(folder))
    return torch.equal(got["w"].to_local(), dtensor(full, mesh, [words]).to_local()), got["r"].tolist() == [rank] * 2, got["seed"] == rank


def missing_rank(rank, folder):
    mesh, group = on_mesh(rank, (2,))
    if mesh:
        try:
            dcp.load({"w": dtensor(torch.zeros(8, 8), mesh, ["S1"])}, storage_reader=StorageReader(folder), process_group=group)
        except (MismatchError, dcp.CheckpointException) as e:  # without collectives each rank raises its own
            return str(e)
    return ""


def twice(rank, folder, overwrite):
    warnings.simplefilter("ignore")
    mesh, _ = on_mesh(rank, (4,))
    dcp.save({"w": dtensor(whole((8, 8)), mesh, ["S0"])}, storage_writer=StorageWriter(folder))
    try:
        dcp.save({"w": dtensor(whole((8, 8)) * 2, mesh, ["S0"])}, storage_writer=StorageWriter(folder, overwrite=overwrite))
    except dcp.CheckpointException as e:
        return str(e)
    got = {"w": dtensor(torch.zeros(8, 8), mesh, ["S1"])}
    dcp.load(got, storage_reader=dcp.FileSystemReader(folder))
    return torch.equal(got["w"].to_local(), dtensor(whole((8, 8)) * 2, mesh, ["S1"]).to_local())


def cached_plans(rank, folder):
    """Unchanged plans are not sent again: nothing of the first save may turn up in the second."""
    warnings.simplefilter("ignore")
    mesh, _ = on_mesh(rank, (4,))
    for step in range(3):
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        dcp.save({"w": dtensor(whole((8, 8)) * (step + 1), mesh, ["S0"])}, storage_writer=StorageWriter(f"{folder}/{step % 2}"), planner=planner)
    got = []
    for step in (2, 1):
        state = {"w": dtensor(torch.zeros(8, 8), mesh, ["S1"])}
        dcp.load(state, checkpoint_id=f"{folder}/{step % 2}")
        got.append(torch.equal(state["w"].to_local(), dtensor(whole((8, 8)) * (step + 1), mesh, ["S1"]).to_local()))
    return all(got)


def installed_calls(rank, folder):
    """Calls that name no class, and async_save in a thread."""
    warnings.simplefilter("ignore")
    mesh, _ = on_mesh(rank, (4,))
    install()
    try:
        group = dist.new_group(backend="gloo")
        for step in (1, 2):
            state = {"w": dtensor(whole((8, 8)) * step, mesh, ["S0"])}
            saving = dcp.async_save(state, checkpoint_id=f"{folder}/a", process_group=group)
            state["w"].to_local().zero_()
            saving.result()
        dcp.save({"w": dtensor(whole((8, 8)), mesh, ["S0"])}, storage_writer=dcp.FileSystemWriter(f"{folder}/b"))
        got = {"w": dtensor(torch.zeros(8, 8), mesh, ["S1"])}
        dcp.load(got, checkpoint_id=f"{folder}/a")
    finally:
        uninstall()
    return torch.equal(got["w"].to_local(), dtensor(whole((8, 8)) * 2, mesh, ["S1"]).to_local())


def changed_plans(rank, folder):
    """Planners that change plans on the coordinator: they leave out an item of the first rank's save, all but one of each load."""
    warnings.simplefilter("ignore")
    mesh, _ = on_mesh(rank, (4,))

    class Less(dcp.DefaultSavePlanner):
        def create_global_plan(self, all_plans):
            first = dataclasses.replace(all_plans[0], items=[x for x in all_plans[0].items if x.index.fqn != "own.0"])
            return super().create_global_plan([first, *all_plans[1:]])

    class Half(dcp.DefaultLoadPlanner):
        def create_global_plan(self, global_plan):
            return [dataclasses.replace(plan, items=plan.items[:1]) for plan in global_plan]

    state = {"own": {str(rank): torch.full((3,), float(rank))}, "w": dtensor(whole((8, 8)), mesh, ["S0"])}
    metadata = dcp.save(state, storage_writer=StorageWriter(folder), planner=Less())
    names = sorted(metadata.state_dict_metadata)
    got = {"own": {"1": torch.zeros(3)}, "w": dtensor(torch.zeros(8, 8), mesh, ["S0"])}
    dcp.load(got, storage_reader=StorageReader(folder), planner=Half())
    return names, bool(got["w"].to_local().any()), bool(got["own"]["1"].any())


def metadata_of_a_save(rank, folder):
    """What dcp.save returns is the same with both writers, apart from places and ids, and pickles as it is then."""
    warnings.simplefilter("ignore")
    mesh, _ = on_mesh(rank, (4,))
    state = {"m": {"w": dtensor(whole((8, 8)), mesh, ["S0"]), "step": 3}}
    stock, ours = (dcp.save(state, storage_writer=writer(side, f"{folder}/{side}")) for side in ("stock", "ours"))
    with open(f"{folder}/ours/.metadata", "rb") as f:
        stored = pickle.load(f)
    ours.version = stored.version = "changed"
    return (
        type(ours) is dcp.Metadata
        and ours == stored
        and pickle.loads(pickle.dumps(ours)) == stored
        and ours.state_dict_metadata == stock.state_dict_metadata
        and ours.planner_data == stock.planner_data
        and ours.storage_data.keys() == stock.storage_data.keys()
    )


def on_fewer_ranks(rank, folder):
    """Saves on four ranks, then three times on the first two."""
    warnings.simplefilter("ignore")
    for shape in ((4,), (2,), (2,), (2,)):
        mesh, group = on_mesh(rank, shape)
        if mesh:
            dcp.save({"w": dtensor(whole((8, 8)), mesh, ["S0"])}, storage_writer=StorageWriter(folder), process_group=group)
        dist.barrier()


def killed(rank, folder, moment):
    """Rank 2 fails between writing and the publication."""
    warnings.simplefilter("ignore")
    mesh, _ = on_mesh(rank, (4,))
    dcp.save({"w": dtensor(whole((8, 8)), mesh, ["S0"])}, storage_writer=StorageWriter(folder))

    class Failing(StorageWriter):
        def write_data(self, plan, planner):
            done = super().write_data(plan, planner)
            if moment == "write" and rank == 2:
                raise OSError("the disk is gone")
            return done

        def finish(self, metadata, results):
            if moment == "finish":
                raise OSError("the disk is gone")
            return super().finish(metadata, results)

    try:
        dcp.save({"w": dtensor(whole((8, 8)) * 2, mesh, ["S0"])}, storage_writer=Failing(folder))
        return "no error"
    except dcp.CheckpointException as e:
        message = str(e)
    got = {"w": dtensor(torch.zeros(8, 8), mesh, ["S1"])}
    dcp.load(got, storage_reader=dcp.FileSystemReader(folder))
    old = torch.equal(got["w"].to_local(), dtensor(whole((8, 8)), mesh, ["S1"]).to_local())
    return "old" if old and "the disk is gone" in message else message


@needs_torch
class OnFourRanks(Case):
    """One group of ranks for all of them."""

    @classmethod
    def setUpClass(cls):
        cls.ranks = Ranks(4)

    @classmethod
    def tearDownClass(cls):
        cls.ranks.close()

    def run_all(self, function, *args):
        return self.ranks.run(function, str(self.folder), *args)

    def moves(self, before, after, shape):
        with self.subTest(before=before, after=after, shape=shape):
            folder = self.folder / f"{before}{after}{shape}".replace("/", "")
            self.assertEqual(self.ranks.run(move, str(folder), before, after, shape, SIDES), [True] * 4)

    def test_placements_on_one_axis_change(self):
        for before, after in (("S0", "S1"), ("S1", "R"), ("R", "S0"), ("S0", "S0")):
            self.moves(((4,), [before]), ((4,), [after]), (8, 8))

    def test_uneven_and_empty_shards_change(self):
        for shape in ((5, 3), (3, 7), (1, 2)):
            self.moves(((4,), ["S0"]), ((4,), ["S1"]), shape)
            self.moves(((4,), ["S1"]), ((4,), ["S0"]), shape)

    def test_placements_on_two_axes_change(self):
        for before, after in ((["S0", "S1"], ["S1", "S0"]), (["R", "S0"], ["S0", "R"]), (["S0", "S0"], ["S1", "S1"])):
            self.moves(((2, 2), before), ((2, 2), after), (8, 6))

    def test_meshes_change(self):
        self.moves(((2, 2), ["S0", "S1"]), ((4,), ["S0"]), (7, 6))
        self.moves(((4,), ["S1"]), ((2, 2), ["R", "S0"]), (7, 6))

    def test_strided_shards_change(self):
        self.moves(((2, 2), ["SS0x2", "S0"]), ((4,), ["S1"]), (8, 4))
        self.moves(((4,), ["S1"]), ((2, 2), ["SS0x2", "S0"]), (8, 4))

    def test_the_number_of_ranks_changes(self):
        self.moves(((4,), ["S0"]), ((2,), ["S1"]), (6, 5))
        self.moves(((2,), ["S0"]), ((4,), ["S0"]), (6, 5))

    def test_sharded_tensors_change_between_rows_and_columns(self):
        for before, after in ((0, 1), (1, 0)):
            with self.subTest(before=before):
                folder = str(self.folder / f"{before}")
                self.assertEqual(self.ranks.run(sharded, folder, before, after, SIDES), [True] * 4)

    def test_plain_tensors_nested_containers_and_values_return(self):
        self.assertEqual(self.run_all(everything, SIDES), [True] * 4)

    def test_without_collectives_each_rank_gets_its_own_values_back(self):
        self.assertEqual(self.run_all(own_metadata, "S0"), [(True, True, True)] * 4)

    def test_without_collectives_shards_can_be_loaded_in_another_layout(self):
        self.assertEqual(self.run_all(own_metadata, "S1"), [(True, True, True)] * 4)

    def test_without_collectives_a_missing_rank_is_noticed(self):
        self.run_all(own_metadata, "S0")
        (self.folder / "__3.metadata").unlink()
        for message in self.run_all(missing_rank)[:2]:
            self.assertIn("which the checkpoint's ranks did not save", message)

    def test_overwriting_replaces(self):
        self.assertEqual(self.run_all(twice, True), [True] * 4)

    def test_files_of_ranks_that_are_no_more_are_removed(self):
        self.run_all(on_fewer_ranks)
        names = sorted(path.name for path in self.folder.glob("*.distcp"))
        self.assertEqual(names, [f"__{rank}_{number}.distcp" for rank in (0, 1) for number in (2, 3)])

    def test_an_existing_checkpoint_is_kept_without_overwrite(self):
        for message in self.run_all(twice, False):
            self.assertIn("Checkpoint already exists", message)

    def test_cached_plans_are_saved_right(self):
        self.assertEqual(self.run_all(cached_plans), [True] * 4)

    def test_planners_may_change_plans_on_the_coordinator(self):
        names = ["own.1", "own.2", "own.3", "w"]
        self.assertEqual(self.run_all(changed_plans), [(names, False, True)] * 4)

    def test_the_metadata_that_a_save_returns_are_those_of_stock_torch(self):
        self.assertEqual(self.run_all(metadata_of_a_save), [True] * 4)

    def test_installed_classes_serve_calls_that_name_none(self):
        self.assertEqual(self.run_all(installed_calls), [True] * 4)
        for name in "ab":
            self.assertTrue(list((self.folder / name).glob(".reshard-sums*")), name)

    def test_a_failure_between_writing_and_publishing_keeps_the_old_checkpoint(self):
        for moment in ("write", "finish"):
            with self.subTest(moment=moment):
                self.assertEqual(self.ranks.run(killed, str(self.folder / moment), moment), ["old"] * 4)


if __name__ == "__main__":
    unittest.main()

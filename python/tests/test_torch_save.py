# SPDX-License-Identifier: Apache-2.0
"""reshard.torch.save on four ranks: every kind of tensor, and what stock torch and ours read of it."""

import unittest

from support import Case, installed, needs_torch

if installed("torch"):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from rank_pool import shared
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor._shards_wrapper import LocalShardsWrapper
    from torch.distributed.tensor.placement_types import _StridedShard

    import reshard
    import reshard.torch

SIDES = [("ours", "ours"), ("ours", "stock"), ("stock", "ours")]
ONE = {"R": ["R"], "S0": ["S0"]}
TWO = {"RR": ["R", "R"], "RS0": ["R", "S0"], "S0R": ["S0", "R"], "S0S0": ["S0", "S0"]}


def save(side, state, path, **more):
    reshard.torch.save(state, path, **more) if side == "ours" else dcp.save(state, checkpoint_id=path, **more)


def load(side, state, path, **more):
    reshard.torch.load(state, path, **more) if side == "ours" else dcp.load(state, checkpoint_id=path, **more)


_meshes = {}


def mesh(*shape):
    """A mesh of the first ranks; all ranks must call it."""
    if shape not in _meshes:
        n = 1
        for s in shape:
            n *= s
        _meshes[shape] = DeviceMesh("cpu", torch.arange(n).reshape(shape))
    return _meshes[shape]


def spread(full, words, on):
    kinds = {"R": Replicate(), "S0": Shard(0), "S1": Shard(1)}
    return distribute_tensor(full.clone(), on, [kinds[w] for w in words])


def same(x, full):
    return torch.equal(x.full_tensor() if isinstance(x, DTensor) else x, full)


# ---- on every rank ----


def placements(rank, folder, writer, reader):
    """Names of the changes of placement or mesh after which something is wrong."""
    full, wrong = torch.arange(16.0).reshape(4, 4), []
    layouts = {k: (w, mesh(4)) for k, w in ONE.items()} | {k: (w, mesh(2, 2)) for k, w in TWO.items()}
    for source, (words, on) in layouts.items():
        path = f"{folder}/{writer}-{reader}-{source}"
        save(writer, {"t": spread(full, words, on)}, path)
        targets = {"t": [t for t in layouts if t != source and len(t) > 0]}
        for target in targets["t"]:
            words, on = layouts[target]
            state = {"t": spread(torch.zeros(4, 4), words, on)}
            load(reader, state, path)
            if not same(state["t"], full):
                wrong.append(f"{source} to {target}")
    return wrong


def odd_shapes(rank, folder, writer, reader):
    one, long, wrong = torch.tensor([3.0]), torch.arange(14.0).reshape(14, 1), []
    path = f"{folder}/odd-{writer}-{reader}"
    save(writer, {"one": spread(one, ["S0"], mesh(4)), "long": spread(long, ["S0"], mesh(4)), "none": torch.zeros(0, 3)}, path)
    state = {"one": spread(torch.zeros(1), ["S0", "S0"], mesh(2, 2)), "long": torch.zeros(14, 1), "none": torch.zeros(0, 3)}
    load(reader, state, path)
    for name, full in (("one", one), ("long", long)):
        if not same(state[name], full):
            wrong.append(name)
    return wrong


def extra_state(rank, folder, writer, reader):
    """torch's own case: sub-meshes of even ranks, and a dict beside."""
    even = DeviceMesh("cpu", [0, 2])

    def make(by):
        return {
            "sdt": spread(torch.arange(4.0) * by, ["S0"], mesh(4)),
            "rdt": spread(torch.arange(4.0, 8.0) * by, ["R"], mesh(4)),
            "submesh_sdt": spread(torch.ones(6) * by, ["S0"], even),
            "submesh_rdt": spread(torch.ones(6) * by, ["R"], even),
            "_extra_state": {"number": by, "tensor": torch.tensor([1.0 * by])},
        }

    path = f"{folder}/extra-{writer}-{reader}"
    save(writer, make(1), path)
    state = make(10)
    load(reader, state, path)
    want = make(1)
    wrong = [k for k in want if k != "_extra_state" and not torch.equal(state[k].to_local(), want[k].to_local())]
    odd = rank % 2 == 0 or state["submesh_sdt"].to_local().numel() == 0
    return wrong, odd, state["_extra_state"]["number"], state["_extra_state"]["tensor"].tolist()


def boxes(rank, folder, writer, reader):
    """Explicit and uneven shards: two kinds of objects that say themselves what they hold, one of them several shards."""
    full, wrong = torch.arange(16.0).reshape(16, 1), []
    uneven = [[(0, 4)], [(4, 3)], [(7, 4)], [(11, 5)]]
    several = [[(12, 1), (0, 3)], [(3, 2)], [(14, 2), (5, 1), (13, 1)], [(6, 6)]]
    cases = {
        "object": (_checkpointable, uneven, [[(0, 2)], [(2, 4)], [(6, 6)], [(12, 4)]]),
        "wrapper": (_wrapped, uneven, [[(0, 6)], [(6, 2)], [(8, 1)], [(9, 7)]]),
        "to several": (_wrapped, uneven, several),
        "from several": (_wrapped, several, uneven),
    }
    for name, (make, before, after) in cases.items():
        path = f"{folder}/{name}-{writer}-{reader}"
        save(writer, {"t": make(full, *before[rank])[0]}, path)
        x, local = make(torch.zeros(16, 1), *after[rank])
        load(reader, {"t": x}, path)
        if not all(torch.equal(part, full[start : start + rows]) for part, (start, rows) in zip(local, after[rank])):
            wrong.append(name)
    return wrong


def _wrapped(full, *places):
    local = [full[start : start + rows].clone() for start, rows in places]
    wrapper = LocalShardsWrapper(local, [(start, 0) for start, _ in places])
    return DTensor.from_local(wrapper, mesh(4), [Shard(0)], run_check=False, shape=full.shape, stride=full.stride()), local


def _checkpointable(full, place):
    start, rows = place
    local = full[start : start + rows].clone()

    class Rows(torch.Tensor):
        """A tensor of which this rank has some rows."""

        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, full.shape)

        def __create_write_items__(self, fqn, _):
            data = TensorWriteData(self.__create_chunk_list__()[0], TensorProperties.create_from_tensor(local), full.size())
            return [WriteItem(MetadataIndex(fqn, torch.Size([start, 0])), WriteItemType.SHARD, tensor_data=data)]

        def __create_chunk_list__(self):
            return [ChunkStorageMetadata(torch.Size([start, 0]), local.size())]

        def __get_tensor_shard__(self, _):
            return local

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.detach.default:
                return args[0]
            raise NotImplementedError(func)

    return Rows(), [local]


def sharded_tensors(rank, folder, writer, reader):
    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{r}/cpu" for r in (2, 0, 3, 1)])
    full = torch.arange(14.0).reshape(14, 1)
    local = full[4 * [1, 3, 0, 2][rank] :][:4].clone()
    made = sharded_tensor.empty(spec, 14, 1)
    made.local_shards()[0].tensor.copy_(local)
    path = f"{folder}/sharded-{writer}-{reader}"
    save(writer, {"t": made}, path)
    again = sharded_tensor.zeros(ChunkShardingSpec(dim=0, placements=[f"rank:{r}/cpu" for r in range(4)]), 14, 1)
    load(reader, {"t": again}, path)
    return torch.equal(again.local_shards()[0].tensor, full[4 * rank :][:4])


def sharded_with_an_empty_rank(rank, folder):
    """Five rows on four ranks leave the last one without any, which torch can't save."""
    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{r}/cpu" for r in range(4)])
    full = torch.arange(5.0).reshape(5, 1)
    made, again = sharded_tensor.empty(spec, 5, 1), sharded_tensor.zeros(spec, 5, 1)
    for shard in made.local_shards():
        shard.tensor.copy_(full[2 * rank :][:2])
    reshard.torch.save({"t": made}, f"{folder}/sharded-empty")
    reshard.torch.load({"t": again}, f"{folder}/sharded-empty")
    return all(torch.equal(shard.tensor, full[2 * rank :][:2]) for shard in again.local_shards())


def overlapping(rank, folder):
    """Ranks 0 and 1 have boxes that begin at the same row and are of different sizes; torch keeps either."""
    full = torch.arange(8.0).reshape(8, 1)
    start, rows = ((0, 2), (0, 4), (4, 2), (6, 2))[rank]
    try:
        reshard.torch.save({"t": _wrapped(full, (start, rows))[0]}, f"{folder}/overlapping")
    except reshard.Error as e:
        return str(e)
    return "saved"


def strided(rank, folder, rows):
    """FSDP2 over tensor parallelism. With uneven rows a rank has several boxes, which torch can't save."""
    on, full = mesh(2, 2), torch.arange(rows * 3.0).reshape(rows, 3)
    places = [_StridedShard(0, split_factor=2), Shard(0)]
    i, j = on.get_coordinate()
    halves = [h.chunk(2)[i] for h in full.chunk(2)]  # of the first axis
    mine = torch.cat(halves).chunk(2)[j]
    x = DTensor.from_local(mine.clone(), on, places, run_check=False, shape=full.shape, stride=full.stride())
    reshard.torch.save({"t": x}, f"{folder}/strided-{rows}")
    plain, again = {"t": torch.zeros(rows, 3)}, {"t": DTensor.from_local(torch.zeros_like(mine), on, places, run_check=False, shape=full.shape, stride=full.stride())}
    dcp.load(plain, checkpoint_id=f"{folder}/strided-{rows}")
    reshard.torch.load(again, f"{folder}/strided-{rows}")
    return torch.equal(plain["t"], full), torch.equal(again["t"].to_local(), mine)


def fewer_ranks(rank, folder, sizes, writer, reader):
    """Saves on the first sizes[0] ranks, loads on the first sizes[1]."""
    full = torch.arange(35.0).reshape(7, 5)
    groups = {n: dist.new_group(range(n)) for n in sizes}
    meshes = {n: mesh(n) for n in sizes}
    path, good = f"{folder}/{sizes}-{writer}-{reader}", None
    if rank < sizes[0]:
        save(writer, {"t": spread(full, ["S0"], meshes[sizes[0]])}, path, process_group=groups[sizes[0]])
    dist.barrier()
    if rank < sizes[1]:
        state = {"t": spread(torch.zeros(7, 5), ["S1"], meshes[sizes[1]])}
        load(reader, state, path, process_group=groups[sizes[1]])
        good = same(state["t"], full)
    dist.barrier()
    return good


def different_keys(rank, folder):
    state = {f"stage{rank // 2}": torch.full((3,), float(rank // 2)), f"value{rank}": rank, "all": torch.ones(2)}
    reshard.torch.save(state, f"{folder}/keys")
    try:
        reshard.torch.save(state, f"{folder}/keys2", uneven_keys=False)
    except reshard.MismatchError as e:
        return e.rank, str(e)
    return None


def failures(rank, folder):
    """What each rank gets when one is wrong."""

    class Raises:
        def state_dict(self):
            raise RuntimeError("out of luck")

        def load_state_dict(self, _):
            pass

    cases = {
        "shape": ({"t": torch.ones(2 + (rank == 1))}, {}),
        "option": ({"t": torch.ones(2)}, {"overwrite": rank != 3}),
        "bad option": ({"t": torch.ones(2)}, {"format": "x" if rank == 2 else "dcp"}),
        "raises": ({"t": Raises() if rank == 2 else torch.ones(2)}, {}),
        "meta": ({"t": torch.ones(2, device="meta" if rank == 0 else "cpu")}, {}),
    }
    got = {}
    for name, (state, options) in cases.items():
        try:
            reshard.torch.save(state, f"{folder}/bad", **options)
        except Exception as e:  # pylint: disable=broad-except
            got[name] = (type(e).__name__, getattr(e, "rank", None), str(e))
    reshard.torch.save({"t": torch.ones(2)}, f"{folder}/good")
    return got


def plain_tensors(rank, folder):
    reshard.torch.save({"rng": torch.full((8,), float(rank)), "value": rank}, f"{folder}/plain")
    try:
        reshard.torch.save({"rng": torch.full((1 << 19,), float(rank))}, f"{folder}/plain2", check_equal=True)
    except reshard.Error as e:
        return str(e)
    return None


@needs_torch
class OnFourRanks(Case):
    """Each test runs one function on all ranks."""

    def on_ranks(self, function, *args):
        return shared(4).run(function, str(self.folder), *args)

    def nothing_wrong(self, function):
        for writer, reader in SIDES:
            with self.subTest(writer=writer, reader=reader):
                self.assertEqual(self.on_ranks(function, writer, reader), [[]] * 4)

    def test_every_change_of_placement_and_mesh(self):
        self.nothing_wrong(placements)

    def test_empty_and_uneven_shards(self):
        self.nothing_wrong(odd_shapes)

    def test_explicit_boxes(self):
        self.nothing_wrong(boxes)

    def test_sub_meshes_and_extra_state(self):
        for writer, reader in SIDES:
            with self.subTest(writer=writer, reader=reader):
                self.assertEqual(self.on_ranks(extra_state, writer, reader), [([], True, 1, [1.0])] * 4)

    def test_sharded_tensors_with_shuffled_ranks(self):
        for writer, reader in SIDES:
            with self.subTest(writer=writer, reader=reader):
                self.assertEqual(self.on_ranks(sharded_tensors, writer, reader), [True] * 4)

    def test_sharded_tensors_with_an_empty_rank(self):
        self.assertEqual(self.on_ranks(sharded_with_an_empty_rank), [True] * 4)

    def test_boxes_that_overlap_are_refused(self):
        for message in self.on_ranks(overlapping):
            self.assertIn('"t": the box [0:2, 0:1] of rank 0 overlaps the box [0:4, 0:1] of rank 1', message)

    def test_strided_shards(self):
        self.assertEqual(self.on_ranks(strided, 8), [(True, True)] * 4)

    def test_strided_shards_of_several_boxes(self):
        self.assertEqual(self.on_ranks(strided, 13), [(True, True)] * 4)

    def test_other_numbers_of_ranks(self):
        for sizes in ((4, 2), (2, 4), (3, 4), (4, 3)):
            for writer, reader in SIDES:
                with self.subTest(sizes=sizes, writer=writer, reader=reader):
                    got = self.on_ranks(fewer_ranks, sizes, writer, reader)
                    self.assertEqual(got, [True] * sizes[1] + [None] * (4 - sizes[1]))

    def test_ranks_may_hold_different_keys(self):
        got = self.on_ranks(different_keys)
        self.assertIn('"', got[0][1])
        self.assertEqual(len({g for g in got}), 1)
        with reshard.open(self.folder / "keys", "pt") as ck:
            self.assertEqual(sorted(ck), ["all", "stage0", "stage1"])
            self.assertEqual(ck["stage1"][...].tolist(), [1.0] * 3)
            self.assertEqual(sorted(ck.objects), [f"value{r}" for r in range(4)])

    def test_one_wrong_rank_fails_all_with_one_message(self):
        got = self.on_ranks(failures)
        for name, bad in (("shape", None), ("option", None), ("bad option", 2), ("raises", 2), ("meta", 0)):
            with self.subTest(name):
                self.assertTrue(all(name in g for g in got), got)
                others = {g[name] for r, g in enumerate(got) if r != bad}
                self.assertEqual(len(others), 1, others)
        self.assertIn("out of luck", got[0]["raises"][2])
        self.assertIn("rank 2", got[0]["raises"][2])
        self.assertEqual(got[2]["raises"][0], "RuntimeError")
        self.assertIn("overwrite", got[0]["option"][2])
        self.assertTrue(reshard.verify(self.folder / "good")["ok"])
        self.assertFalse((self.folder / "bad").exists())

    def test_small_plain_tensors_and_values_are_those_of_the_first_rank(self):
        got = self.on_ranks(plain_tensors)
        with reshard.open(self.folder / "plain", "pt") as ck:
            self.assertEqual(ck["rng"][...].tolist(), [0.0] * 8)
            self.assertEqual(ck.objects["value"], 0)
        self.assertTrue(all("rng" in g for g in got), got)


if __name__ == "__main__":
    unittest.main()

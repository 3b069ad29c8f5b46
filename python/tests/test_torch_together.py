# SPDX-License-Identifier: Apache-2.0
"""StorageReaders of one machine that read for each other, and what keeps them from it."""

import os
import sys
import tempfile
import unittest

from rank_pool import shared
from support import needs_torch

_SIDE = 1024  # 2 MiB of bfloat16; each rank wants 512 bytes of every row


def _state(dim, rank):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (4,))
    whole = torch.arange(_SIDE * _SIDE, dtype=torch.float32).reshape(_SIDE, _SIDE)
    expected = [(whole + i).to(torch.bfloat16).chunk(4, dim)[rank].contiguous() for i in range(4)]
    return {f"w{i}": DTensor.from_local(x.clone(), mesh, [Shard(dim)]) for i, x in enumerate(expected)}, expected


def _save(rank, folder):
    import torch.distributed.checkpoint as dcp

    dcp.save(_state(0, rank)[0], checkpoint_id=folder)


def _load(rank, folder, trouble):
    """Whether this rank read together with the others. `trouble`: what rank 1 does."""
    import torch
    import torch.distributed.checkpoint as dcp

    import reshard.torch
    from reshard.torch import _together

    class Commits(dcp.DefaultLoadPlanner):
        def commit_tensor(self, read_item, tensor):
            super().commit_tensor(read_item, tensor)

    class Fails(dcp.DefaultLoadPlanner):
        def resolve_tensor(self, read_item):
            raise KeyError("trouble")

    class Looks(dcp.DefaultLoadPlanner):
        def create_global_plan(self, global_plan):
            assert all(plan.items for plan in global_plan)
            return super().create_global_plan(global_plan)

    state, expected = _state(1, rank)
    for x in state.values():
        x.to_local().zero_()
    planner, mine = None, rank == 1
    if mine and trouble == "another planner":
        planner = Commits()
    elif mine and trouble == "an error":
        planner = Fails()
    elif trouble == "plans that are looked at":
        planner = Looks()
    elif mine and trouble == "targets that overlap":
        local = state["w0"].to_local()
        expected[1] = expected[0]
        state["w1"] = state["w0"]
        assert local.data_ptr() == state["w1"].to_local().data_ptr()
    done, read, before = [], _together.Together.read, _together.PAYS_FROM
    _together.Together.read = lambda *args: done.append(read(*args)) or done[-1]
    _together.PAYS_FROM = 1
    path = folder + "/other" if mine and trouble == "another checkpoint" else folder + "/ck"
    reader = reshard.torch.StorageReader(path, share=not (mine and trouble == "share=False"))
    try:
        dcp.load(state, storage_reader=reader, planner=planner)
    except dcp.api.CheckpointException as e:
        return str(e)
    finally:
        _together.Together.read, _together.PAYS_FROM = read, before
    if trouble == "targets that overlap":
        return any(done)
    for x, want in zip(state.values(), expected):
        assert torch.equal(x.to_local(), want)
    return any(done)


def _small(rank, folder):
    import torch.distributed.checkpoint as dcp

    import reshard.torch
    from reshard.torch import _together

    asked, comm_for_reading = [], _together._comm.comm_for_reading
    _together._comm.comm_for_reading = lambda ranks: asked.append(ranks) or comm_for_reading(ranks)
    try:
        dcp.load(_state(1, rank)[0], storage_reader=reshard.torch.StorageReader(folder))
    finally:
        _together._comm.comm_for_reading = comm_for_reading
    return asked


@needs_torch
class Together(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="reshard-")
        cls.path = os.path.realpath(cls.folder.name)
        for name in ("ck", "other"):
            shared(4).run(_save, f"{cls.path}/{name}")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def load(self, trouble=None):
        return shared(4).run(_load, self.path, trouble)

    def test_columns_are_read_together(self):
        self.assertEqual(self.load(), [True] * 4)

    def test_one_rank_that_declines_makes_all_read_alone(self):
        for trouble in ("another planner", "another checkpoint", "targets that overlap", "plans that are looked at"):
            with self.subTest(trouble=trouble):
                self.assertEqual(self.load(trouble), [False] * 4)
                self.assertEqual(self.load(), [True] * 4)  # nothing is broken

    def test_a_rank_that_does_not_share_leaves_it_to_the_others(self):
        self.assertEqual(self.load("share=False"), [True, False, True, True])

    def test_an_error_of_one_rank_is_told_to_all_at_once(self):
        for text in self.load("an error"):
            self.assertIn("trouble", text)
        self.assertEqual(self.load(), [True] * 4)

    def test_little_is_read_alone(self):
        self.assertEqual(shared(4).run(_small, self.path + "/ck"), [[]] * 4)

    def test_partners_are_processes_of_one_machine(self):
        from reshard.torch import _together

        much = _together.PAYS_FROM
        notes = [(0, 10, "a", much), (1, 11, "b", much), (2, 12, "a", 0), (3, 13, "b", 0), (4, 14, "c", much)]
        self.assertEqual(_together.partners(notes), [(0, 2), (1, 3), (0, 2), (1, 3), None])
        self.assertEqual(_together.partners([(0, 10, "a", much), (1, 10, "a", much)]), [None] * 2)  # threads
        self.assertEqual(_together.partners([(0, 10, "a", much - 1), (1, 11, "a", 0)]), [None] * 2)
        self.assertEqual(_together.partners([(0, 10, "a", much), None, (2, 12, "a", 0)]), [(0, 2), None, (0, 2)])
        self.assertEqual(_together.partners([(0, 10, None, much), (1, 11, None, much)]), [None] * 2)


if __name__ == "__main__":
    sys.exit(unittest.main())

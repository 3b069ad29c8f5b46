# SPDX-License-Identifier: Apache-2.0
"""reshard.torch.async_save: a checkpoint holds what the tensors held at the call."""

import os
import signal
import subprocess
import sys
import unittest

import ranks
from support import Case, installed, needs_torch

if installed("torch"):
    import torch
    import torch.distributed.checkpoint as dcp
    from rank_pool import shared
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    import reshard
    import reshard.torch


def state_of(value, on):
    full = torch.full((64, 8), float(value))
    return {
        "rows": distribute_tensor(full, on, [Shard(0)]),
        "both": distribute_tensor(full.clone(), on, [Replicate()]),
        "plain": torch.full((5,), float(value)),
        "list": [value],
    }


def change_after_the_call(rank, folder, stage):
    """Saves three times in a row, changing everything right after each call."""
    on = init_device_mesh("cpu", (4,))
    state, saves = state_of(1, on), []
    for value in (1, 2, 3):
        saves.append(reshard.torch.async_save(state, f"{folder}/{value}", stage=stage))
        for x in (state["rows"].to_local(), state["both"].to_local(), state["plain"]):
            x.fill_(value + 1)
        state["list"][0] = value + 1
    early = state_of(0, on)
    reshard.torch.load(early, f"{folder}/1")  # the last one may still be running
    for saving in saves:
        saving.result()
    found = [early["rows"].full_tensor().unique().tolist()]
    for value in (1, 2, 3):
        got = state_of(0, on)
        dcp.load(got, checkpoint_id=f"{folder}/{value}")
        tensors = (got["rows"].full_tensor(), got["both"].to_local(), got["plain"])
        found.append([t.unique().tolist() for t in tensors] + [got["list"]])
    return found


def fail_in_the_background(rank, folder):
    on = init_device_mesh("cpu", (4,))
    reshard.torch.save(state_of(1, on), f"{folder}/there")
    try:
        saving = reshard.torch.async_save(state_of(2, on), f"{folder}/there", overwrite=False)
        saving.result()
    except FileExistsError as e:
        reshard.torch.async_save(state_of(3, on), f"{folder}/after").result()
        return e.name
    return None


def killed_in_the_background(rank, folder, stage, size):
    """Rank 1 is killed while all ranks write, and make it durable. Says what the others got; None: it came too late."""
    on = init_device_mesh("cpu", (4,))
    reshard.torch.comm_of(timeout=30.0)
    path = f"{folder}/{stage}"
    reshard.torch.save(state_of(1, on), path)
    large = {**state_of(2, on), "more": distribute_tensor(torch.full((size,), 2.0), on, [Shard(0)])}
    saving = reshard.torch.async_save(large, path, stage=stage)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    problem = saving.exception(timeout=60)
    return problem and (isinstance(problem, reshard.CommError), problem.rank, str(problem))


@needs_torch
class OnFourRanks(Case):
    """Each test runs one function on all ranks."""

    def test_tensors_may_change_right_after_the_call(self):
        for stage in ("fork", "copy"):
            with self.subTest(stage=stage):
                (self.folder / stage).mkdir()
                got = shared(4).run(change_after_the_call, str(self.folder / stage), stage)
                want = [[1.0]] + [[[float(v)], [float(v)], [float(v)], [v]] for v in (1, 2, 3)]
                self.assertEqual(got, [want] * 4)

    def test_a_failure_reaches_every_rank_and_the_next_save_works(self):
        self.assertEqual(shared(4).run(fail_in_the_background, str(self.folder)), ["RSD_E_EXISTS"] * 4)
        self.assertTrue(reshard.verify(self.folder / "after")["ok"])


    def test_a_killed_rank_is_named_and_the_old_checkpoint_stays(self):
        for stage in ("fork", "copy"):
            with self.subTest(stage=stage):
                for size in (16 << 20, 64 << 20, 256 << 20):  # it may come too late on a loaded machine
                    results = ranks.run(4, killed_in_the_background, str(self.folder), stage, size, may_die=(1,))
                    for got in filter(None, results):
                        self.assertEqual(got[:2], (True, 1), got)
                        self.assertIn("rank 1 is gone", got[2])
                    self.assertTrue(reshard.verify(self.folder / stage)["ok"])
                    with reshard.open(self.folder / stage, "pt") as ck:
                        plain = ck["plain"][...].tolist()
                    if plain == [1.0] * 5:
                        break
                self.assertEqual(plain, [1.0] * 5)
                self.assertTrue(all(results[rank] for rank in (0, 2, 3)), results)


KILLED = """
import os, signal, sys, torch, reshard.torch
path, stage = sys.argv[1:]
state = {"w": torch.ones(1 << 24), "n": 1}
reshard.torch.save(state, path)
state["w"].fill_(2); state["n"] = 2
reshard.torch.async_save(state, path, stage=stage)
os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_torch
class InOneProcess(Case):
    """Without torch.distributed."""

    def test_it_is_used_like_a_future(self):
        saving = reshard.torch.async_save({"w": torch.ones(4)}, self.folder / "a")
        self.assertTrue(saving.staging_completion.done())
        self.assertIs(saving.upload_completion, saving)
        self.assertIsNone(saving.result())
        self.assertTrue(saving.done() and saving.wait() and not saving.running())
        self.assertIsNone(saving.exception())

    def test_memory_that_processes_share_is_copied(self):
        w = torch.ones(4).share_memory_()
        saving = reshard.torch.async_save({"w": w}, self.folder / "a", stage="fork")
        w.fill_(2)
        saving.result()
        with reshard.open(self.folder / "a", "pt") as ck:
            self.assertEqual(ck["w"][...].tolist(), [1.0] * 4)

    def test_a_killed_save_leaves_the_previous_checkpoint_or_the_new_one(self):
        for stage in ("fork", "copy"):
            with self.subTest(stage=stage):
                path = self.folder / stage
                done = subprocess.run([sys.executable, "-c", KILLED, str(path), stage], check=False, stderr=subprocess.DEVNULL)
                self.assertEqual(done.returncode, -signal.SIGKILL)
                self.assertTrue(reshard.verify(path)["ok"])
                state = {"w": torch.zeros(1 << 24), "n": 0}
                reshard.torch.load(state, path)
                self.assertEqual((state["w"].unique().tolist(), state["n"]), ([float(state["n"])], state["n"]))
                reshard.torch.save({"w": torch.zeros(1)}, path)
                self.assertEqual(sorted(p.name for p in self.folder.iterdir() if p.name.startswith(stage)), [stage])


if __name__ == "__main__":
    unittest.main()

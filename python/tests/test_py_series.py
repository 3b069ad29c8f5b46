# SPDX-License-Identifier: Apache-2.0
"""reshard.Series."""

import array
import unittest

from support import Case, needs_torch

import reshard


def torch_series(rank, folder):
    import torch

    import reshard.torch

    series, seen = reshard.torch.Series(folder), []
    for step in (10, 20, 30):
        reshard.torch.save({"w": torch.full((4,), float(step))}, series.path(step))
        removed = series.prune(last=2)
        seen.append((series.latest(), removed if rank == 0 else None))
    state = {"w": torch.zeros(4)}
    reshard.torch.load(state, series.path(series.latest()))
    return seen, state["w"].tolist()


class Steps(Case):
    """In one process."""

    def save(self, series, *steps):
        for step in steps:
            reshard.save(series.path(step), {"w": array.array("f", [step])})

    def test_a_folder_that_is_missing_has_no_steps(self):
        series = reshard.Series(self.folder / "run")
        self.assertEqual((series.steps(), series.latest()), ([], None))
        self.assertEqual(series.path(7), str(self.folder / "run" / "step-7"))

    def test_the_latest_complete_step_is_found(self):
        series = reshard.Series(self.folder)
        self.save(series, 1, 2, 10)
        (self.folder / "step-11").mkdir()
        self.assertEqual(series.latest(), 10)
        self.assertEqual(series.steps(), [1, 2, 10, 11])

    def test_new_steps_are_named_like_the_last(self):
        (self.folder / "checkpoint_5").mkdir()
        series = reshard.Series(self.folder)
        self.assertEqual(series.path(6), str(self.folder / "checkpoint_6"))

    def test_pruning_keeps_the_last_and_every_nth(self):
        series = reshard.Series(self.folder)
        self.save(series, 10, 20, 30, 40, 50)
        self.assertEqual(series.prune(last=2, every=20, dry_run=True), [10, 30])
        self.assertEqual(series.steps(), [10, 20, 30, 40, 50])
        self.assertEqual(series.prune(last=2, every=20), [10, 30])
        self.assertEqual(series.steps(), [20, 40, 50])

    def test_at_least_one_is_kept(self):
        with self.assertRaises(ValueError):
            reshard.Series(self.folder).prune(last=0)


@needs_torch
class OnFourRanks(Case):
    """With a process group."""

    def test_all_ranks_get_the_same_answers(self):
        from rank_pool import shared

        got = shared(4).run(torch_series, str(self.folder))
        for rank, (seen, w) in enumerate(got):
            self.assertEqual([s for s, _ in seen], [10, 20, 30], rank)
            self.assertEqual(w, [30.0] * 4)
        self.assertEqual([r for _, r in got[0][0]], [[], [], [10]])


if __name__ == "__main__":
    unittest.main()

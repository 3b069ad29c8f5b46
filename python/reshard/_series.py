# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of a run, one for each step."""

import os

from . import _core
from ._errors import NotFoundError


class Series:
    """The checkpoints in a folder whose names end in a step: "step-100", "checkpoint_100", "100", "step-100.pt".

    series = reshard.Series("run")
    step = series.latest()                  # None: none is complete
    reshard.save(series.path(step + 100), state)
    series.prune(last=3, every=1000)"""

    _comm = None

    def __init__(self, path):
        self.folder = os.fsdecode(path)
        self._core = _core.Series(path)

    def steps(self):
        """The steps in the folder now, complete or not."""
        return [step for step, _ in self._core.steps()]

    def latest(self):
        """The highest step whose checkpoint is complete; None if there is none."""
        try:
            return self._core.latest(self._comm)
        except NotFoundError:
            return None

    def path(self, step):
        """The path of a step: that of its entry or, for a new one, named like the last entry, "step-<N>" at first."""
        return os.fsdecode(self._core.path(step))

    def prune(self, last=1, every=0, *, dry_run=False):
        """Removes complete checkpoints except the `last` ones and those whose step is a multiple of `every`. dry_run only
        looks. Returns the steps; between ranks on the first one, the others get []."""
        return sorted(self._core.prune(last, every, dry_run, self._comm))

    def __repr__(self):
        return f"Series({self.folder!r})"

# SPDX-License-Identifier: Apache-2.0
"""A series of checkpoints, for ranks."""

from .._series import Series as _Series
from ._group import Group


class Series(_Series):
    """reshard.Series for the ranks of a process group: rank 0 looks and removes, all get its answer."""

    def __init__(self, path, process_group=None):
        super().__init__(path)
        self._group = Group(process_group, False)

    @property
    def _comm(self):
        return self._group.comm

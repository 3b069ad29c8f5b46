# SPDX-License-Identifier: Apache-2.0
"""Stager: takes the place of the DefaultStager that dcp.async_save makes for each save."""

import threading

from torch.distributed.checkpoint.staging import DefaultStager

_lock = threading.Lock()
_idle = {}  # (pinned, shared) -> a StateDictStager with the buffers of a save that has ended


class Stager(DefaultStager):
    """A DefaultStager whose buffers outlive it: the next save copies into them instead of new memory. One set is kept, as
    long as the tensors that it mirrors exist. Overlapping saves get sets of their own."""

    def __init__(self, config=None):
        super().__init__(config) if config is not None else super().__init__()
        self._kind = self._config.use_pinned_memory, self._config.use_shared_memory
        with _lock:
            kept = _idle.pop(self._kind, None)
        if kept is not None:
            self._state_dict_stager = kept

    def close(self):
        if self._staging_executor:
            self._staging_executor.shutdown(wait=True)
        with _lock:
            spare, self._state_dict_stager = self._state_dict_stager, None
            if spare is not None:
                spare = _idle.setdefault(self._kind, spare) is not spare and spare
        if spare:
            spare.close()

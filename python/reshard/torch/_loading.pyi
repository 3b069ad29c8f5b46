# SPDX-License-Identifier: Apache-2.0
import os
from typing import Any

from torch.distributed import ProcessGroup

def load(
    state_dict: dict[str, Any],
    path: str | os.PathLike[str] | None = None,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    strict: bool = True,
    trust_objects: bool = False,
    prefix: str | None = None,
    share: bool | None = None,
    verify: bool | None = None,
    threads: int = 0,
    max_memory: int = 0,
) -> None: ...

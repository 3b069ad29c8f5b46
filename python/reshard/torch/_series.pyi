# SPDX-License-Identifier: Apache-2.0
import os

from torch.distributed import ProcessGroup

from .. import Series as _Series

class Series(_Series):
    def __init__(self, path: str | os.PathLike[str], process_group: ProcessGroup | None = None) -> None: ...

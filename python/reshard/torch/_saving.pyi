# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal

from torch.distributed import ProcessGroup

_Path = str | os.PathLike[str]

class AsyncSave:
    path: str
    def result(self, timeout: float | None = None) -> None: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def done(self) -> bool: ...
    def running(self) -> bool: ...
    def cancel(self) -> None: ...
    @property
    def staging_completion(self) -> Future[None]: ...
    @property
    def upload_completion(self) -> AsyncSave: ...

def save(
    state_dict: Mapping[str, Any],
    path: _Path | None = None,
    *,
    checkpoint_id: _Path | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    overwrite: bool = True,
    format: Literal["dcp", "safetensors", "torch"] | None = "dcp",
    uneven_keys: bool | None = None,
    check_equal: bool = False,
    compress: str | None = None,
    sync: bool | None = None,
    checksum: bool | None = None,
    threads: int = 0,
    max_memory: int = 0,
    progress: Callable[[int, int], object] | Any | None = None,
) -> None: ...
def async_save(
    state_dict: Mapping[str, Any],
    path: _Path | None = None,
    *,
    checkpoint_id: _Path | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    stage: Literal["fork", "copy"] = "fork",
    overwrite: bool = True,
    format: Literal["dcp", "safetensors", "torch"] | None = "dcp",
    uneven_keys: bool | None = None,
    check_equal: bool = False,
    compress: str | None = None,
    sync: bool | None = None,
    checksum: bool | None = None,
    threads: int = 0,
    max_memory: int = 0,
) -> AsyncSave: ...

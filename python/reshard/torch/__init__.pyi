# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, SerializationFormat
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from ._loading import load as load
from ._saving import AsyncSave as AsyncSave, async_save as async_save, save as save
from ._series import Series as Series

_Choice = bool | Literal["default", "always", "never"] | None
_Rename = Callable[[str], str] | Mapping[str, str] | Iterable[tuple[str, str]] | None

class StorageReader(FileSystemReader):
    def __init__(
        self,
        path: str | os.PathLike[str],
        _extension_registry: ExtensionRegistry | None = None,
        *,
        rename: _Rename = None,
        verify: _Choice = None,
        trust_objects: bool | None = None,
        share: bool = True,
        threads: int = 0,
        max_memory: int = 0,
    ) -> None: ...

class HuggingFaceReader(StorageReader):
    thread_count: int
    def __init__(self, path: str | os.PathLike[str], thread_count: int = 1, **options: Any) -> None: ...

class StorageWriter(FileSystemWriter):
    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Sequence[StreamTransformExtension] | None = None,
        serialization_format: SerializationFormat = ...,
        *,
        checksum: bool = True,
        threads: int = 0,
        max_memory: int = 0,
    ) -> None: ...

class HuggingFaceWriter(HuggingFaceStorageWriter): ...

class Stager(DefaultStager):
    def __init__(self, config: StagingOptions | None = None) -> None: ...

def install(*, trust_objects: bool = False) -> None: ...
def uninstall() -> None: ...

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, overload

__version__: str

_Path = str | bytes | PathLike[str] | PathLike[bytes]
_Framework = Literal["np", "pt", "raw"]
_Format = Literal["dcp", "safetensors", "torch"]
_Globs = str | Iterable[str]

class _Bar(Protocol):
    n: Any
    total: Any
    def update(self, n: Any = ..., /) -> Any: ...

_Progress = Callable[[int, int], object] | _Bar | None
_Wanted = str | tuple[str, Any]

class Array:
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None, dl_device: object = None, copy: bool | None = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Chunk:
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int
    transforms: tuple[str, ...]

class Opaque:
    name: str
    def __init__(self, name: str) -> None: ...

class DType(str): ...
class Device(str): ...

class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    @property
    def ndim(self) -> int: ...
    @property
    def chunks(self) -> list[Chunk]: ...
    @property
    def health(self) -> Literal["whole", "damaged", "gone"]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def read(self, key: Any = ..., *, into: Any = None, cast: bool = False, framework: _Framework | None = None, verify: bool | None = None, threads: int = 0) -> Any: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...

class Objects(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...

class Checkpoint(Mapping[str, Tensor]):
    path: _Path
    framework: _Framework
    @property
    def format(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def has_checksums(self) -> bool: ...
    @property
    def objects(self) -> Objects: ...
    def __getitem__(self, name: str) -> Tensor: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def load(
        self,
        names: str | Iterable[_Wanted] | None = None,
        into: Mapping[str, Any] | Iterable[Any] | None = None,
        *,
        cast: bool = False,
        framework: _Framework | None = None,
        verify: bool | None = None,
        threads: int = 0,
        max_memory: int = 0,
        progress: _Progress = None,
    ) -> dict[str, Any]: ...
    def state_dict(self, *, framework: _Framework | None = None, verify: bool | None = None, threads: int = 0, progress: _Progress = None) -> dict[Any, Any]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Checkpoint: ...
    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None: ...

class Saving:
    path: _Path
    def wait(self, timeout: float | None = None, *, progress: _Progress = None) -> bool: ...
    def done(self) -> bool: ...
    def cancel(self) -> None: ...
    def __enter__(self) -> Saving: ...
    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None: ...

class Series:
    folder: str
    def __init__(self, path: _Path) -> None: ...
    def steps(self) -> list[int]: ...
    def latest(self) -> int | None: ...
    def path(self, step: int) -> str: ...
    def prune(self, last: int = 1, every: int = 0, *, dry_run: bool = False) -> list[int]: ...

def open(path: _Path, framework: _Framework | None = None, *, salvage: bool = False) -> Checkpoint: ...
def load(path: _Path, framework: _Framework | None = None, *, verify: bool | None = None, threads: int = 0, progress: _Progress = None) -> dict[Any, Any]: ...
@overload
def save(
    path: _Path,
    state: Mapping[Any, Any],
    *,
    wait: Literal[True] = True,
    stage: Literal["copy", "fork"] = "copy",
    format: _Format | None = None,
    overwrite: bool = False,
    layout: str | None = None,
    shard_size: int = 0,
    compress: str | None = None,
    sync: bool | None = None,
    checksum: bool | None = None,
    threads: int = 0,
    max_memory: int = 0,
    progress: _Progress = None,
) -> None: ...
@overload
def save(
    path: _Path,
    state: Mapping[Any, Any],
    *,
    wait: Literal[False],
    stage: Literal["copy", "fork"] = "copy",
    format: _Format | None = None,
    overwrite: bool = False,
    layout: str | None = None,
    shard_size: int = 0,
    compress: str | None = None,
    sync: bool | None = None,
    checksum: bool | None = None,
    threads: int = 0,
    max_memory: int = 0,
    progress: _Progress = None,
) -> Saving: ...
def save_async(
    path: _Path,
    state: Mapping[Any, Any],
    *,
    stage: Literal["copy", "fork"] = "copy",
    format: _Format | None = None,
    overwrite: bool = False,
    layout: str | None = None,
    shard_size: int = 0,
    compress: str | None = None,
    sync: bool | None = None,
    checksum: bool | None = None,
    threads: int = 0,
    max_memory: int = 0,
) -> Saving: ...
def verify(path: _Path, *, quick: bool = False, threads: int = 0, progress: _Progress = None) -> dict[str, Any]: ...
def convert(
    source: _Path | Checkpoint,
    path: _Path,
    *,
    format: _Format | None = None,
    layout: str | None = None,
    include: _Globs = (),
    exclude: _Globs = (),
    rename: Callable[[str], str] | Mapping[str, str] | None = None,
    dtype: object | Mapping[str, object] | None = None,
    shard_size: int = 0,
    compress: str | None = None,
    overwrite: bool = False,
    keep: bool = False,
    resume: bool = False,
    dry_run: bool = False,
    salvage: bool = False,
    recipe: _Path | None = None,
    reverse: bool = False,
    set: Mapping[str, float] | None = None,
    config: _Path | None = None,
    carry: bool | None = None,
    sync: bool | None = None,
    checksum: bool | None = None,
    verify: bool | None = None,
    threads: int = 0,
    max_memory: int = 0,
    progress: _Progress = None,
) -> dict[str, Any]: ...
def diff(
    a: _Path,
    b: _Path,
    *,
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    rename: str | Sequence[str] = (),
    cast: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    names_only: bool = False,
    threads: int = 0,
    progress: _Progress = None,
) -> dict[str, Any]: ...
def plan(path: _Path, layout: str | PathLike[str]) -> dict[str, Any]: ...

class Error(Exception):
    code: int
    name: str
    rank: int
    errno: Any
    def __init__(self, message: str = "", rank: int = -1, errno: int = 0) -> None: ...

class InvalidError(Error, ValueError): ...
class MismatchError(Error, ValueError): ...
class UnsupportedError(Error): ...
class NotFoundError(Error, FileNotFoundError): ...
class MissingKeyError(NotFoundError, KeyError): ...
class ExistsError(Error, FileExistsError): ...
class FormatError(Error): ...
class CorruptError(Error): ...
class NoMemoryError(Error, MemoryError): ...
class SystemIOError(Error, OSError): ...
class CommError(Error): ...
class CanceledError(Error): ...
class RankTimeoutError(Error, TimeoutError): ...

# SPDX-License-Identifier: Apache-2.0
"""Save, load, convert and verify sharded checkpoints: PyTorch DCP, safetensors and Hugging Face folders, torch.save.

    with reshard.open("step-1000") as ck:
        rows = ck["model.wq.weight"][8:16, :]       # reads only those bytes

docs/python.md describes every call."""

from . import _core
from ._core import Array
from ._errors import (
    CanceledError,
    CommError,
    CorruptError,
    Error,
    ExistsError,
    FormatError,
    InvalidError,
    MismatchError,
    MissingKeyError,
    NoMemoryError,
    NotFoundError,
    RankTimeoutError,
    SystemIOError,
    UnsupportedError,
)
from ._reading import Checkpoint, Chunk, Device, DType, Objects, Opaque, Tensor, load, open
from ._saving import Saving, convert, save, save_async, verify
from ._series import Series
from ._tool import diff, plan

__version__ = _core.version

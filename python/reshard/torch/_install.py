# SPDX-License-Identifier: Apache-2.0
"""install() and uninstall(): torch's names for its storage classes become ours, and back. The classes keep their own names,
so that a process without the replacement that unpickles one imports ours or fails, but never uses the stock one."""

import sys

import torch.distributed.checkpoint  # pylint: disable=unused-import
from torch.distributed.checkpoint import filesystem, hf_storage, staging

from . import _objects
from ._reader import HuggingFaceReader, StorageReader
from ._stager import Stager
from ._writer import HuggingFaceWriter, StorageWriter

_package = "torch.distributed.checkpoint"
_ours = {
    "FileSystemReader": (filesystem.FileSystemReader, StorageReader, ("", "._storage_utils", ".filesystem", ".format_utils")),
    "FileSystemWriter": (filesystem.FileSystemWriter, StorageWriter, ("", "._storage_utils", ".filesystem", ".format_utils")),
    "HuggingFaceStorageReader": (hf_storage.HuggingFaceStorageReader, HuggingFaceReader, ("", ".hf_storage")),
    "HuggingFaceStorageWriter": (hf_storage.HuggingFaceStorageWriter, HuggingFaceWriter, ("", ".hf_storage")),
    "DefaultStager": (staging.DefaultStager, Stager, (".state_dict_saver",)),
}


def _replace(old, new, name, places):
    for place in places:
        module = sys.modules.get(_package + place)
        if module is not None and getattr(module, name, None) is old:
            setattr(module, name, new)


def install(*, trust_objects=False):
    """Makes torch.distributed.checkpoint use StorageReader, StorageWriter, HuggingFaceReader, HuggingFaceWriter and Stager wherever it, or a
    caller, looks up the stock classes by name. trust_objects: their readers unpickle objects of any class."""
    _objects.trusted = bool(trust_objects)
    for name, (stock, ours, places) in _ours.items():
        _replace(stock, ours, name, places)


def uninstall():
    """Undoes install(). What was imported from torch by name meanwhile stays."""
    _objects.trusted = False
    for name, (stock, ours, places) in _ours.items():
        _replace(ours, stock, name, places)

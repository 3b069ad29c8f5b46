# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of any format as torch.distributed.checkpoint's Metadata, built from the library's catalogue: no pickle is
loaded. _reader.py reads by it."""

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from .. import _core
from .._errors import FormatError, InvalidError, MismatchError, NotFoundError, UnsupportedError


def renamer(rename):
    """A function from stored names to new ones: the one given, or of (regex, replacement) pairs the first that matches."""
    if rename is None or isinstance(rename, Callable):
        return rename
    pairs = rename.items() if isinstance(rename, Mapping) else rename
    try:
        rules = [(re.compile(pattern), to) for pattern, to in pairs]
    except (TypeError, ValueError, re.error) as e:
        raise InvalidError(f"rename is neither a function nor pairs of a regular expression and its replacement: {e}") from None

    def apply(name):
        for pattern, to in rules:
            new, hits = pattern.subn(to, name)
            if hits:
                return new
        return name

    return apply


def dtype_of(name):
    """torch's dtype of that name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UnsupportedError(f"this torch has no {name}")
    return dtype


class Places(Mapping):
    """Metadata.storage_data: where each chunk is stored, looked up when it is asked for."""

    def __init__(self, catalogue):
        self._catalogue = catalogue

    def __getitem__(self, index):
        return self._catalogue.place(index)

    def __iter__(self):
        for name, (_, _, chunks) in self._catalogue.tensors.items():
            for i, chunk in enumerate(chunks):
                yield MetadataIndex(name, chunk.offsets, i)
        for name in self._catalogue.objects:
            yield MetadataIndex(name)

    def __len__(self):
        return sum(len(chunks) for _, _, chunks in self._catalogue.tensors.values()) + len(self._catalogue.objects)

    def __reduce__(self):
        return dict, (dict(self),)


class Catalogue:
    """An open checkpoint: what it holds under which name.

    Ranks that saved without collectives have metadata of their own. Then `rank` sees its own objects and whatever tensors
    it saved whole, and of the others what all ranks saved together."""

    def __init__(self, path, rank, rename):
        self.tensors = {}  # name -> (core checkpoint, number, chunks)
        self.objects = {}  # name -> (core checkpoint, number)
        self.incomplete = set()  # names of tensors of which chunks are missing
        self.state, self.paths = {}, {}
        self._properties, self._chunks, self._rename = {}, {}, rename
        shared, own = self._open(path, rank)
        self.info = (shared or own).dcp()
        if shared:
            self._take(shared, False)
        if own:
            self._take(own, True)

    @staticmethod
    def _open(path, rank):
        if not _is_of_single_ranks(path):
            return _core.open(path, False), None
        if rank is None:
            raise NotFoundError(f'"{path}" has only metadata of single ranks: read_metadata(rank=...) reads them')
        try:
            shared = _core.open(path, False)
        except (FormatError, MismatchError, NotFoundError):
            shared = None  # other ranks' files are missing: this rank's own may do
        own = _core.open(path, False, rank) if os.path.exists(os.path.join(path, f"__{rank}.metadata")) else None
        if not shared and not own:
            shared = _core.open(path, False)  # for its message
        return shared, own

    def _name(self, stored, known):
        name = self._rename(stored) if self._rename else stored
        if name in known:
            raise MismatchError(f'two tensors or objects are renamed to "{name}", "{stored}" is one of them')
        return name

    def _take(self, core, own):
        seen = set()
        for number, (stored, dtype, shape, count, boxes, path) in enumerate(core.catalogue()):
            name = self._name(stored, seen)
            seen.add(name)
            whole = not own or _covers(boxes, len(shape), count, shape)
            if own and not whole and name in self.tensors:
                continue  # the other ranks' chunks are needed too
            if not whole:
                self.incomplete.add(name)
            chunks = self._chunks_of(boxes, len(shape), count)
            properties = self._properties.get(dtype)
            if properties is None:
                properties = self._properties[dtype] = TensorProperties(dtype=dtype_of(dtype))
            self.tensors[name] = core, number, chunks
            self.state[name] = TensorStorageMetadata(properties, torch.Size(shape), list(chunks))
            self.paths[name] = path if path is not None and name == stored else (name,)
        for number, (stored, path) in enumerate(core.object_paths()):
            name = self._name(stored, seen)
            seen.add(name)
            self.objects[name] = core, number
            self.state[name] = BytesStorageMetadata()
            self.paths[name] = path if path is not None and name == stored else (name,)

    def _chunks_of(self, boxes, ndim, count):
        """Many tensors are cut alike: they share their chunks."""
        chunks = self._chunks.get((ndim, count, boxes))
        if chunks is None:
            at = memoryview(boxes).cast("q")
            rows = range(0, 2 * ndim * count, 2 * ndim) if ndim else [0] * count
            chunks = [ChunkStorageMetadata(torch.Size(at[i : i + ndim]), torch.Size(at[i + ndim : i + 2 * ndim])) for i in rows]
            self._chunks[ndim, count, boxes] = chunks
        return chunks

    def metadata(self, load_id):
        """torch's description of the checkpoint."""
        where, save_id, version = self.info or (None, None, None)
        if where is not None and "://" not in where:
            where = Path(where)
        return Metadata(self.state, self.paths, Places(self), StorageMeta(where, save_id, load_id), version)

    def place(self, index):
        """The _StorageInfo of a MetadataIndex; KeyError if there is none."""
        found = self.objects.get(index.fqn)
        if found:
            place = found[0].object_place(found[1])
            if place is None:
                raise KeyError(index)
        else:
            core, number, chunks = self.tensors[index.fqn]
            place = core.chunk(number, self._number(index, chunks))[2:]
        file, offset, length, transforms = place
        return _StorageInfo(file, offset, length, list(transforms) or None)

    @staticmethod
    def _number(index, chunks):
        at = index.index
        if at is not None and 0 <= at < len(chunks) and chunks[at].offsets == index.offset:
            return at
        for i, chunk in enumerate(chunks):
            if chunk.offsets == index.offset:
                return i
        raise KeyError(index)

    def transforms(self, index):
        """The names of the transforms of a chunk or object, without versions."""
        return [name.partition("/")[0] for name in self.place(index).transform_descriptors or ()]


def _is_of_single_ranks(path):
    try:
        names = os.listdir(path)
    except OSError:  # a file, or missing: opening it tells
        return False
    return ".metadata" not in names and any(re.fullmatch(r"__\d+\.metadata", name) for name in names)


def _covers(boxes, ndim, count, shape):
    """True if the chunks, which don't overlap, fill the tensor."""
    if ndim == 0:
        return count > 0
    at = memoryview(boxes).cast("q")
    return sum(math.prod(at[i + ndim : i + 2 * ndim]) for i in range(0, len(at), 2 * ndim)) >= math.prod(shape)

# SPDX-License-Identifier: Apache-2.0
"""StorageWriter: what torch.distributed.checkpoint writes to. Each rank writes a part, the coordinator publishes all of them
by one rename inside the folder (rule C8 of docs/commit.md). Files are ordinary DCP."""

import dataclasses
import io
import json
import os
import re
import warnings
from pathlib import Path

import torch
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import (
    CURRENT_DCP_VERSION,
    FileSystem,
    FileSystemWriter,
    SerializationFormat,
    _StorageInfo,
    _StoragePrefix,
)
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import WriteItemType
from torch.futures import Future

from .. import _core, _reading
from .._errors import ExistsError, InvalidError, MismatchError
from . import _sent
from ._reader import is_plain, locals_of, name_of, view_of

_CODES = {True: 0, False: 2}  # rsd_choice


class StorageWriter(FileSystemWriter):
    """Takes the place of FileSystemWriter. A save is all or nothing, also inside a folder with other files; files of other
    programs are never touched.

    checksum: write a checksum file. threads, max_memory: 0 lets the library choose. Each rank writes one file, whatever
    single_file_per_rank and thread_count say. A writer protects its file from the clean-up of others until it is reset,
    used again or dropped."""

    def __init__(
        self,
        path,
        single_file_per_rank=True,
        sync_files=True,
        thread_count=1,
        per_thread_copy_ahead=10_000_000,
        cache_staged_state_dict=False,
        overwrite=True,
        _extensions=None,
        serialization_format=SerializationFormat.TORCH_SAVE,
        *,
        checksum=True,
        threads=0,
        max_memory=0,
    ):
        super().__init__(
            path,
            single_file_per_rank=single_file_per_rank,
            sync_files=sync_files,
            thread_count=thread_count,
            per_thread_copy_ahead=per_thread_copy_ahead,
            cache_staged_state_dict=cache_staged_state_dict,
            overwrite=overwrite,
            _extensions=_extensions,
            serialization_format=serialization_format,
        )
        self._checksum = _reading.choice(None if checksum is True else checksum, "checksum")
        self._threads, self._max_memory = _number(threads, "threads"), _number(max_memory, "max_memory")
        self._part = self._plan = self._given = self._calm = None
        self._leads = False

    def __getstate__(self):
        return {**self.__dict__, "_part": None, "_plan": None, "_given": None, "_calm": None}

    def _is_ours(self):
        """False for subclasses that write to other stores or formats."""
        return type(self.fs) is FileSystem and self.serialization_format == SerializationFormat.TORCH_SAVE

    def _alone(self):
        return self.rank if not self.use_collectives and self.rank is not None else -1

    def reset(self, checkpoint_id=None):
        super().reset(checkpoint_id)
        self._part = self._plan = self._given = self._calm = None

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        self._leads, self._calm = is_coordinator, _sent.Calm()  # the planner works now

    def prepare_local_plan(self, plan):
        if not self._leads:  # whose planner goes on with all plans
            self._calm = None
        if not self._is_ours():
            return super().prepare_local_plan(plan)
        self._part = None
        self.fs.mkdir(self.path)
        alone = self._alone()
        if not self.overwrite and self.fs.exists(self._get_metadata_path(None if alone < 0 else alone)):
            raise _exists(self.path)
        if alone >= 0:
            return dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{alone}_"))
        plan, self._plan = _sent.save_plan(plan, self.rank)
        return plan

    def prepare_global_plan(self, plans):
        self._calm = None
        plans = super().prepare_global_plan(plans)
        self._given = _sent.kept_plans(plans) if self._is_ours() else plans
        return self._given

    def write_data(self, plan, planner):
        rank = _rank_of(plan) if self._is_ours() else None
        if rank is None:
            return super().write_data(plan, planner)
        extensions = list(self.transforms.extensions)
        packed = [type(x) for x in extensions] == [ZStandard]
        items, dtypes = [], {}
        local = locals_of(planner, DefaultSavePlanner, "resolve_data", "lookup_object", "transform_object")
        for item in plan.items:
            data = local(item.index) if item.type == WriteItemType.SHARD else None
            if data is None:
                data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO or (extensions and not packed):
                items.append((item.index.fqn, None, None, self._bytes(item, data, packed)))
            else:
                items.append(self._tensor(item, data))
            if item.type != WriteItemType.BYTE_IO and data.dtype != item.tensor_data.properties.dtype:
                dtypes[item.index.fqn] = data.dtype
        done = Future()
        done.set_result(self._write(rank, plan, items, dtypes, "stream.zstd" if packed else None))
        self._plan = None
        return done

    def _write(self, rank, plan, items, dtypes, transform):
        self._part = None
        if not items:
            return []
        self._part = _core.write_part(
            os.fspath(self.path),
            rank,
            items,
            transform=transform,
            sync=_CODES[bool(self.sync_files)],
            checksum=self._checksum,
            threads=self._threads,
            max_memory=self._max_memory,
        )
        names = [x.get_descriptor() for x in reversed(self.transforms.extensions)] or None
        file, places = self._part.places()
        return _sent.Results(plan, self._plan, file, places, names, self._part.receipt(), dtypes)

    def _bytes(self, item, data, packed):
        """What stock writes: an object, or a tensor that only torch can pickle; with the caller's extensions applied."""
        if not isinstance(data, io.BytesIO):
            tensor = data.detach().cpu()
            data = io.BytesIO()
            # A view is saved without the rest of its storage.
            torch.save(tensor if _fills_storage(tensor) else tensor.clone(), data)
        if packed or not self.transforms.extensions:
            return data.getbuffer()
        out = io.BytesIO()
        stream, _ = self.transforms.transform_save_stream(item, out)
        stream.write(data.getbuffer())
        stream.close()
        return out.getbuffer()

    def _tensor(self, item, data):
        """An item of write_part. The memory stays as it is until it is written."""
        chunk = item.tensor_data.chunk
        if data.shape != chunk.sizes:
            raise MismatchError(
                f'tensor "{item.index.fqn}": the planner gave shape {list(data.shape)} for a chunk of {list(chunk.sizes)}'
            )
        if not is_plain(data):
            if type(data) not in (torch.Tensor, torch.nn.Parameter) or data.layout is not torch.strided or data.is_quantized:
                return item.index.fqn, None, None, self._bytes(item, data, True)
            data = data.detach().cpu().resolve_conj().resolve_neg()
        if name_of(data.dtype) is None:
            return item.index.fqn, None, None, self._bytes(item, data, True)
        if 0 in data.stride():
            data = data.contiguous()
        return item.index.fqn, item.tensor_data.size, chunk.offsets, view_of(data)

    def finish(self, metadata, results):
        self._given = None
        receipts = [result.receipt for part in results for result in part if getattr(result, "receipt", b"")]
        if not self._is_ours() or len(receipts) != sum(map(bool, results)):
            return super().finish(metadata, results)  # a subclass wrote the files in its own way
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {result.index: result.storage_data for part in results for result in part}
        metadata.storage_meta = self.storage_meta()
        _check_complete(metadata)
        for part in results:
            for name, dtype in part[0].dtypes.items() if part else ():
                old = metadata.state_dict_metadata[name]
                metadata.state_dict_metadata[name] = TensorStorageMetadata(TensorProperties(dtype=dtype), old.size, old.chunks)
        try:
            unread = _core.publish(
                os.fspath(self.path),
                receipts,
                _sent.metadata(metadata, len(results)),
                overwrite=self.overwrite,
                rank=self._alone(),
                sync=_CODES[bool(self.sync_files)],
                checksum=self._checksum,
            )
        except ExistsError:
            raise _exists(self.path) from None
        self._part = None
        if unread:
            warnings.warn(f'"{self.path}" was saved without checksums, and reshard can\'t read it: {unread}', stacklevel=2)
        return None


class HuggingFaceWriter(HuggingFaceStorageWriter):
    """Takes the place of HuggingFaceStorageWriter. Ranks write files of their own, and not all of them every time: those that an
    earlier save left in the folder are removed if this one saved all of their tensors anew, instead of being mixed with it."""

    def finish(self, metadata, results):
        if self.save_distributed and type(self.fs) is FileSystem:
            written = {result.storage_data.relative_path for part in results for result in part}
            for path in list(Path(self.path).iterdir()):
                if _SHARD.fullmatch(path.name) and path.name not in written and _names_in(path) <= metadata.state_dict_metadata.keys():
                    path.unlink(missing_ok=True)
        return super().finish(metadata, results)


_SHARD = re.compile(r"shard-\d{5,}-model-\d{5,}-of-\d{5,}\.safetensors")  # torch's name of a rank's file


def _names_in(path):
    """The tensors of a safetensors file; the path if it is none."""
    try:
        with open(path, "rb") as f:
            header = json.loads(f.read(min(int.from_bytes(f.read(8), "little"), os.path.getsize(path))))
        return header.keys() - {"__metadata__"}
    except (OSError, ValueError, AttributeError):
        return {path}


def _number(value, name):
    if not isinstance(value, int) or value < 0:
        raise InvalidError(f"{name}: a number, not {value!r}")
    return value


def _exists(path):
    return RuntimeError(f'Checkpoint already exists in "{path}" and overwrite=False.')


def _rank_of(plan):
    """The number in the names of this rank's files, `__<rank>_`; None: a subclass has its own names."""
    match = re.fullmatch(r"__(\d+)_", getattr(plan.storage_data, "prefix", ""))
    return int(match[1]) if match else None


def _fills_storage(tensor):
    try:
        return tensor.untyped_storage().size() == tensor.numel() * tensor.itemsize
    except (RuntimeError, NotImplementedError):  # no storage
        return True


def _check_complete(metadata):
    """No publication of metadata whose data nobody wrote."""
    wanted = sum(len(m.chunks) if isinstance(m, TensorStorageMetadata) else 1 for m in metadata.state_dict_metadata.values())
    if len(metadata.storage_data) < wanted:
        raise MismatchError(f"{wanted} chunks and objects were planned, but ranks wrote only {len(metadata.storage_data)}")

# SPDX-License-Identifier: Apache-2.0
"""StorageReader: what torch.distributed.checkpoint reads from. _catalogue.py opens and describes the checkpoint."""

import io
import math
import os
import sys

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan
from torch.distributed.checkpoint.planner_helpers import _create_chunk_list
from torch.futures import Future

from .. import _core, _reading
from .._errors import Error, MismatchError
from . import _objects, _sent, _together
from ._catalogue import Catalogue, renamer

_STAGED = 256 << 20  # bytes that are read before they are copied to their tensors
_names = {}  # torch.dtype -> the library's name, None if it has none


def name_of(dtype):
    """The library's name of a torch.dtype; None if it has none."""
    if dtype not in _names:
        try:
            _names[dtype] = _core.dtype(str(dtype))[0]
        except Error:
            _names[dtype] = None
    return _names[dtype]


def is_plain(tensor):
    """True for memory on the CPU that the library can read and write."""
    kind = type(tensor)
    return (
        (kind is torch.Tensor or kind is torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
    )


def view_of(tensor):
    """A core View of a plain tensor."""
    return _core.View.of_pointer(tensor, tensor.data_ptr(), name_of(tensor.dtype), tensor.shape, tensor.stride())


def locals_of(planner, kind, *names):
    """A function from an index to the memory of a DTensor on this rank: what a planner that resolves as `kind` does gives,
    without its detours. None: ask the planner."""
    dtensor = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    if dtensor is None or any(getattr(type(planner), name, None) is not getattr(kind, name) for name in names):
        return lambda index: None
    state = planner.state_dict

    def local(index):
        tensor = state.get(index.fqn)
        if type(tensor) is not dtensor:
            return None
        tensor = tensor._local_tensor
        return tensor if is_plain(tensor) else None

    return local


class StorageReader(FileSystemReader):
    """Takes the place of FileSystemReader and reads every format that the library knows.

    rename: a function from stored names to new ones, or pairs of a regular expression and its replacement, of which the
    first that matches counts. verify: True compares every checksum of the rows that are touched, False none; by default
    those of rows that are read whole anyway. trust_objects: unpickle objects of any class. share: False lets each rank read
    for itself what is read in short runs; otherwise ranks of a machine read it for each other. threads, max_memory: 0 lets the
    library choose."""

    def __init__(
        self, path, _extension_registry=None, *, rename=None, verify=None, trust_objects=None, share=True, threads=0, max_memory=0
    ):
        super().__init__(path, _extension_registry)
        self._share = share
        self._options = _reading.choice(verify, "verify"), threads, max_memory
        self._rename = renamer(rename)
        self._trust_objects = trust_objects
        self._catalogue = self._plan = self._calm = None

    def __getstate__(self):
        return {**self.__dict__, "_catalogue": None, "_plan": None, "_calm": None}

    def _is_local(self):
        """Subclasses for other stores replace `fs`."""
        return type(self.fs) is FileSystem

    def reset(self, checkpoint_id=None):
        super().reset(checkpoint_id)
        self._catalogue = self._plan = self._calm = None

    def read_metadata(self, *args, **kwargs):
        if not self._is_local():
            return super().read_metadata(*args, **kwargs)
        self._catalogue = Catalogue(os.fspath(self.path), kwargs.get("rank"), self._rename)
        return self._catalogue.metadata(self.load_id)

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)
        self._calm = _sent.Calm()  # the planner works now

    def prepare_local_plan(self, plan):
        self._calm = None
        plan = super().prepare_local_plan(plan)
        note = _together.note(plan.items, self._catalogue.state) if self._share and self._catalogue else None
        plan, self._plan = _sent.load_plan(plan, note)
        return plan

    def prepare_global_plan(self, plans):
        plans = super().prepare_global_plan(plans)
        _sent.answer_notes(plans, _together.partners)
        return plans

    def read_data(self, plan, planner):
        if not self._is_local():
            return super().read_data(plan, planner)
        # A subclass may have got its metadata elsewhere.
        catalogue = self._catalogue or Catalogue(os.fspath(self.path), self.rank, self._rename)
        with _together.Together(_sent.answer_of(plan)) as together:
            tensors, objects, theirs = self._sorted(plan.items, catalogue)
            _check_coverage(tensors, planner, catalogue)
            if type(planner).commit_tensor is DefaultLoadPlanner.commit_tensor:
                self._read_at_once(tensors, planner, catalogue, together)
            else:
                together.decline()
                self._read_staged(((item, None) for item in tensors), planner, catalogue)
        for item in objects:
            planner.load_bytes(item, io.BytesIO(self._object(item.storage_index.fqn, catalogue)))
        if theirs:
            if not self.storage_data:
                self.storage_data = catalogue.metadata(self.load_id).storage_data
            super().read_data(LoadPlan(theirs), self._guarded(planner))
        self._catalogue = self._plan = None  # closes its files
        done = Future()
        done.set_result(None)
        return done

    def _sorted(self, items, catalogue):
        """Tensors, objects, and what only extensions of the caller can read."""
        known = self.transforms.extension_registry.extensions.keys() <= {"stream.zstd"}
        tensors, objects, theirs = [], [], []
        for item in items:
            is_object = item.type == LoadItemType.BYTE_IO
            if item.storage_index.fqn not in (catalogue.objects if is_object else catalogue.tensors):
                raise MismatchError(f'"{item.storage_index.fqn}" is not in checkpoint "{self.path}"')
            if not known and catalogue.info and not {"stream.zstd"}.issuperset(catalogue.transforms(item.storage_index)):
                theirs.append(item)
            else:
                (objects if is_object else tensors).append(item)
        return tensors, objects, theirs

    # ---- tensors ----

    def _read(self, core, reads):
        verify, threads, max_memory = self._options
        core.read(reads, False, verify, threads, max_memory, None)

    def _read_at_once(self, items, planner, catalogue, together):
        """Straight into the planner's tensors, with one call of the library; the rest through staging."""
        reads, targets, taken, rest = {}, [], [], []
        local = locals_of(planner, DefaultLoadPlanner, "resolve_tensor", "lookup_tensor", "transform_tensor")
        for item in items:
            target = local(item.dest_index)
            if target is None:
                target = planner.resolve_tensor(item)
            elif target.shape != item.lengths:
                target = narrow_tensor_by_index(target, item.dest_offsets, item.lengths)
            core, number, _ = catalogue.tensors[item.storage_index.fqn]
            lengths = item.lengths
            if target.shape != lengths:
                raise _size_mismatch(item, target)
            if not is_plain(target) or catalogue.state[item.storage_index.fqn].properties.dtype != target.dtype:
                rest.append((item, target))
            elif target.numel():
                reads.setdefault(core, []).append((number, _offsets(item), lengths, view_of(target)))
                targets.append(target)
                taken.append((item, target))
        try:
            if not (len(reads) == 1 and together.read(*next(iter(reads.items())), self._options)):
                together.decline()
                for core, wanted in reads.items():
                    self._read(core, wanted)
        except ValueError as e:
            if isinstance(e, Error):
                raise
            rest = [*taken, *rest]  # two names may share one tensor
        else:
            _bump(targets)
        self._read_staged(iter(rest), planner, catalogue)

    def _read_staged(self, pairs, planner, catalogue):
        """Into buffers first. Then each tensor is resolved, if it is not yet, copied to and committed, one by one."""
        for batch in _batches(pairs, catalogue):
            reads = {}
            for item, _, buffer in batch:
                core, number, _ = catalogue.tensors[item.storage_index.fqn]
                if buffer.numel():
                    reads.setdefault(core, []).append((number, _offsets(item), item.lengths, view_of(buffer)))
            for core, wanted in reads.items():
                self._read(core, wanted)
            for item, target, buffer in batch:
                target = (planner.resolve_tensor(item) if target is None else target).detach()
                if target.size() != buffer.size():
                    raise _size_mismatch(item, target)
                target.copy_(buffer)
                planner.commit_tensor(item, target)

    # ---- objects ----

    def _trusts(self):
        return _objects.trusted if self._trust_objects is None else self._trust_objects

    def _object(self, key, catalogue):
        """The bytes of an object, as torch.save writes it, that a planner may unpickle."""
        core, number = catalogue.objects[key]
        if catalogue.info:
            data = core.object_bytes(number, self._options[0])
            if not self._trusts():
                _objects.check(data, key)
            return data
        unknown = []
        hook = _reading._hook("pt")

        def notice(kind, x):
            if kind == "opaque":
                unknown.append(x)
            return hook(kind, x)

        value = core.object(number, notice)
        if unknown:
            raise _objects.refused(key, ", ".join(unknown))
        data = io.BytesIO()
        torch.save(value, data)
        return data.getvalue()

    def _guarded(self, planner):
        return planner if self._trusts() else _Guarded(planner)


class HuggingFaceReader(StorageReader):
    """Takes the place of HuggingFaceStorageReader; StorageReader reads the same folders."""

    def __init__(self, path, thread_count=1, **options):
        super().__init__(path, threads=options.pop("threads", 0), **options)
        self.thread_count = thread_count


class _Guarded:
    """A planner that is given no object unseen."""

    def __init__(self, planner):
        self._planner = planner

    def __getattr__(self, name):
        return getattr(self._planner, name)

    def load_bytes(self, item, value):
        """Looks at the bytes first."""
        _objects.check(value.getvalue(), item.storage_index.fqn)
        self._planner.load_bytes(item, value)


def _offsets(item):
    return [a + b for a, b in zip(item.storage_index.offset, item.storage_offsets)]


def _size_mismatch(item, target):
    return MismatchError(
        f'"{item.storage_index.fqn}": the planner gave a tensor of shape {list(target.shape)} for {list(item.lengths)} elements'
    )


def _bump(tensors):
    """Tells autograd that they changed, as copy_ does."""
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])


def _batches(pairs, catalogue):
    """Lists of (item, target, buffer), each of about _STAGED bytes."""
    batch, size = [], 0
    for item, target in pairs:
        dtype = catalogue.state[item.storage_index.fqn].properties.dtype
        buffer = torch.empty(item.lengths, dtype=dtype)
        batch.append((item, target, buffer))
        size += buffer.nbytes
        if size >= _STAGED:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _check_coverage(items, planner, catalogue):
    """Of a tensor that ranks saved without collectives, chunks may be missing: the planner does not look."""
    state = getattr(planner, "state_dict", None) if catalogue.incomplete else None
    if not state:
        return
    found = {}
    for item in items:
        found[item.dest_index] = found.get(item.dest_index, 0) + math.prod(item.lengths)
    for name in catalogue.incomplete & state.keys():
        for chunk in _create_chunk_list(state[name]) if isinstance(state[name], torch.Tensor) else ():
            if found.get(MetadataIndex(name, chunk.offsets), 0) < math.prod(chunk.sizes):
                raise MismatchError(
                    f'tensor "{name}" needs {list(chunk.sizes)} elements at {list(chunk.offsets)}, '
                    "some of which the checkpoint's ranks did not save"
                )

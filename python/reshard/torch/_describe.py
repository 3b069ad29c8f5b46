# SPDX-License-Identifier: Apache-2.0
"""Tensors of every kind that torch.distributed.checkpoint takes, as the core's State has them: a layout and the memory of a
local tensor, or boxes and the memory of each."""

import sys

import torch

from .. import _core
from .._errors import Error, InvalidError, UnsupportedError
from ._tree import name_of

_REPLICATE, _SHARD, _STRIDED = 1, 2, 3
_WHOLE = ((_REPLICATE, 0, 0),)
# Plain tensors up to this size come from the first rank, larger ones are written by all ranks together.
_SMALL = 1 << 20

_dtypes = {}  # torch.dtype -> its name


def _known(module, name):
    """A class, if its module is loaded: otherwise there is no instance of it."""
    return getattr(sys.modules.get(module), name, ())


def dtype_name(dtype):
    name = _dtypes.get(dtype)
    if name is None:
        name = _dtypes[dtype] = str(dtype)
    return name


def _place(p):
    if p.is_replicate():
        return (_REPLICATE, 0, 0)
    if p.is_partial():
        raise UnsupportedError("it has partial placements: reduce it to Replicate or Shard first")
    split = getattr(p, "split_factor", None)
    if split is not None:
        return (_STRIDED, p.dim, split)
    if p.is_shard():
        return (_SHARD, p.dim, 0)
    raise UnsupportedError(f"the placement {p} is not known")


class Describer:
    """Fills a State. kept_apart: ranks may have different tensors, so that of each only its own boxes count."""

    def __init__(self, group, loading, kept_apart=False):
        self.group, self.loading, self.apart = group, loading, kept_apart
        self.state = _core.State(group.rank, loading)
        self.copies = []  # (tensor, memory on the CPU that is loaded for it)
        self._layouts = {}
        self._dtensor = _known("torch.distributed.tensor", "DTensor")
        self._sharded = _known("torch.distributed._shard.sharded_tensor", "ShardedTensor")

    def tensor(self, path, x):
        """Adds a tensor; False if it is none."""
        kind = type(x)
        try:
            if kind is self._dtensor:
                self._add_dtensor(path, x)
            elif (kind is torch.Tensor or kind is torch.nn.Parameter) and "global_offsets" not in x.__dict__:
                self._add_plain(path, x)
            elif not isinstance(x, torch.Tensor) and not hasattr(x, "__create_chunk_list__") and not isinstance(x, self._sharded):
                return False
            else:
                self._add_other(path, x)
        except (ValueError, TypeError, UnsupportedError) as e:
            if isinstance(e, Error):
                raise type(e)(f'"{name_of(path)}": {e}') from None
            raise InvalidError(f'"{name_of(path)}": {e}') from None
        return True

    # ---- kinds ----

    def _add_dtensor(self, path, x):
        local, spec = x._local_tensor, x._spec
        if hasattr(local, "__create_chunk_list__"):
            self._add_chunks(path, x, x.shape)
            return
        shape = spec.tensor_meta.shape if spec.tensor_meta is not None else x.shape
        key = (id(spec.mesh), spec.placements, shape, local.dtype)
        layout = self._layouts.get(key)
        if layout is None:
            mesh, places = spec.mesh, tuple(map(_place, spec.placements))
            layout = _core.Layout.of_mesh(
                tuple(mesh.shape), self.group.ranks(mesh), places, dtype_name(local.dtype), shape, self.group.rank
            )
            self._layouts[key] = layout
        self._add_local(path, layout, local)

    def _add_plain(self, path, x):
        if self.loading or self.apart:
            self._add_boxes(path, x.shape, x.dtype, [((0,) * x.dim(), x)])
            return
        alone = x.numel() * x.element_size() <= _SMALL
        key = (alone, x.shape, x.dtype)
        layout = self._layouts.get(key)
        if layout is None:
            first = 0 if self.group.comm is not None else self.group.rank
            ranks = (first,) if alone or self.group.comm is None else tuple(range(self.group.size))
            layout = _core.Layout.of_mesh((len(ranks),), ranks, _WHOLE, dtype_name(x.dtype), x.shape, self.group.rank)
            self._layouts[key] = layout
        if alone and self.group.comm is not None and self.group.rank != 0:
            self.state.tensor(path, layout, 0, (0,), None, None)
        else:
            self._add_local(path, layout, x)

    def _add_other(self, path, x):
        if isinstance(x, self._sharded):
            shards = x.local_shards()
            if any(type(s.tensor) is not torch.Tensor and not isinstance(s.tensor, torch.nn.Parameter) for s in shards):
                raise UnsupportedError("a ShardedTensor inside a ShardedTensor is not supported")
            self._add_boxes(path, x.size(), x.dtype, [(s.metadata.shard_offsets, s.tensor) for s in shards])
        elif hasattr(x, "__create_chunk_list__"):
            self._add_chunks(path, x, x.size())
        elif hasattr(x, "global_offsets"):
            self._add_pieces(path, x)
        elif type(x).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl:  # a class without data of its own
            self._add_plain(path, x.as_subclass(torch.Tensor))
        else:
            raise UnsupportedError(f"tensors of class {type(x).__module__}.{type(x).__qualname__} have no plain elements")

    def _add_chunks(self, path, x, shape):
        """Objects that tell torch.distributed.checkpoint their chunks: LocalShardsWrapper and others."""
        from torch.distributed.checkpoint.metadata import MetadataIndex

        name, parts = name_of(path), []
        if self.loading:
            places = [(c.offsets, c.sizes, i) for i, c in enumerate(x.__create_chunk_list__())]
        else:
            items = x.__create_write_items__(name, x)
            places = [(i.tensor_data.chunk.offsets, i.tensor_data.chunk.sizes, None) for i in items]
            shape = items[0].tensor_data.size if items else shape
        for offsets, sizes, i in places:
            if 0 not in sizes:
                parts.append((offsets, x.__get_tensor_shard__(MetadataIndex(name, offsets, i))))
        self._add_boxes(path, shape, parts[0][1].dtype if parts else x.dtype, parts)

    def _add_pieces(self, path, x):
        """A local tensor whose attributes say which boxes of it lie where in the whole."""
        parts = []
        for whole, own, size in zip(x.global_offsets, x.local_offsets, x.local_sizes):
            index = tuple(slice(o, o + n) for o, n in zip(own, size))
            parts.append((tuple(whole), torch.Tensor.__getitem__(x.detach().as_subclass(torch.Tensor), index)))
        self._add_boxes(path, x.global_shape, x.dtype, parts)

    # ---- memory ----

    def _memory(self, x):
        """A tensor on the CPU whose elements have memory of their own: x itself if it does."""
        if x.layout is not torch.strided or x.is_quantized:
            raise UnsupportedError(f"a tensor of layout {x.layout} has no plain elements")
        device = x.device.type
        if device == "meta":
            raise UnsupportedError("it is on the meta device and has no elements")
        plain = device == "cpu" and not x.is_conj() and not x.is_neg() and (x.is_contiguous() or 0 not in x.stride())
        if plain:
            return x
        if not self.loading:
            return x.detach().cpu().resolve_conj().resolve_neg().contiguous()
        memory = torch.empty(x.shape, dtype=x.dtype, device="cpu")
        self.copies.append((x, memory))
        return memory

    def _add_local(self, path, layout, x):
        if hasattr(x, "wait") and type(x) is not torch.Tensor:  # the result of a collective
            x = x.wait()
        x = self._memory(x)
        self.state.tensor(path, layout, x.data_ptr(), x.shape, None if x.is_contiguous() else x.stride(), x)

    def _add_boxes(self, path, shape, dtype, parts):
        boxes, keep = [], []
        for offsets, x in parts:
            x = self._memory(x)
            keep.append(x)
            boxes.append((tuple(offsets), x.shape, x.data_ptr(), None if x.is_contiguous() else x.stride()))
        self.state.boxes(path, dtype_name(dtype), tuple(shape), boxes, keep)

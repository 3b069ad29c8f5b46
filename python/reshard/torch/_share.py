# SPDX-License-Identifier: Apache-2.0
"""Plans and metadata repeat the same few shapes thousands of times. Equal ones become one object each, which pickle then
writes once: sending and storing them takes a fraction of the time. Values stay the same."""

from torch.distributed.checkpoint.metadata import TensorStorageMetadata

_set = object.__setattr__  # items are frozen


def _properties(p, one):
    return one((p.dtype, p.layout, p.requires_grad, p.memory_format, p.pin_memory), p)


def _index(index, one):
    if index.offset is not None:
        _set(index, "offset", one(index.offset, index.offset))


def _chunk(chunk, one):
    chunk.offsets, chunk.sizes = one(chunk.offsets, chunk.offsets), one(chunk.sizes, chunk.sizes)


def write_items(items):
    """The items of a SavePlan."""
    one = {}.setdefault
    for item in items:
        _index(item.index, one)
        data = item.tensor_data
        if data is not None:
            _chunk(data.chunk, one)
            _set(data, "size", one(data.size, data.size))
            _set(data, "properties", _properties(data.properties, one))


def read_items(items):
    """The items of a LoadPlan."""
    one = {}.setdefault
    for item in items:
        _index(item.dest_index, one)
        _index(item.storage_index, one)
        for name in ("dest_offsets", "storage_offsets", "lengths"):
            value = getattr(item, name)
            _set(item, name, one(value, value))


def metadata(whole):
    """Everything in a Metadata."""
    one = {}.setdefault
    for m in whole.state_dict_metadata.values():
        if isinstance(m, TensorStorageMetadata):
            m.properties = _properties(m.properties, one)
            m.size = one(m.size, m.size)
            for chunk in m.chunks:
                _chunk(chunk, one)
    for index in whole.storage_data:
        _index(index, one)

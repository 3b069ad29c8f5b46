# SPDX-License-Identifier: Apache-2.0
"""What the tests need of torch's checkpoints: transforms, whole loads, single items."""

import io
import pathlib
import pickle

import torch
import torch.distributed.checkpoint as dcp
import zstandard
from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

import values

SWAP = bytes(c ^ 0x20 if chr(c).isascii() and chr(c).isalpha() else c for c in range(256))


class Rot13(StreamTransformExtension):
    """The same as tests/support/rot13.c."""

    @staticmethod
    def registry_name():
        return "stream.rot13"

    @staticmethod
    def from_descriptor(version):
        return Rot13()

    def get_descriptor(self):
        return "stream.rot13/1"

    def transform_to(self, output):
        class Writer(io.RawIOBase):
            def writable(self):
                return True

            def write(self, data):
                output.write(bytes(data).translate(SWAP))
                return len(data)

            def close(self):
                if not self.closed:
                    super().close()
                    output.close()  # the stream below may have an end to write

        return Writer()

    def transform_from(self, source):
        return io.BytesIO(source.read().translate(SWAP))


def registry():
    known = ExtensionRegistry()
    known.register(Rot13)
    return known


def reader(path):
    return dcp.FileSystemReader(path, _extension_registry=registry())


def metadata(path):
    return reader(path).read_metadata()


def boxes(path):
    """name -> sorted (offset, sizes) of the chunks, as torch's metadata have them."""
    return {
        name: sorted((tuple(c.offsets), tuple(c.sizes)) for c in meta.chunks)
        for name, meta in metadata(path).state_dict_metadata.items()
        if isinstance(meta, TensorStorageMetadata)
    }


def load_all(path):
    """The whole checkpoint as torch itself nests it."""
    state = {}
    _load_state_dict(
        state, storage_reader=reader(path), planner=_EmptyStateDictLoadPlanner(), no_dist=True
    )
    return state


def load_safetensors(path, wanted):
    """dcp.load of a safetensors folder into zeros."""
    state = {k: values.zeros(t.dtype, t.shape) for k, t in wanted.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(str(path)), no_dist=True)
    return state


def undo(data, descriptors):
    for descriptor in reversed(descriptors or []):
        if descriptor.startswith("stream.zstd"):
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        else:
            data = data.translate(SWAP)
    return data


def items(path):
    """(index, bytes) of every item, as it was before transforms."""
    with open(pathlib.Path(path) / ".metadata", "rb") as f:
        storage = pickle.load(f).storage_data
    for index, info in storage.items():
        with open(pathlib.Path(path) / info.relative_path, "rb") as f:
            f.seek(info.offset)
            data = f.read(info.length)
        yield index, undo(data, getattr(info, "transform_descriptors", None))


def load_items(path):
    """The checkpoint put together by hand, each item with weights_only=True: (tensors, objects)."""
    meta = metadata(path).state_dict_metadata
    tensors = {
        k: values.zeros(m.properties.dtype, m.size)
        for k, m in meta.items()
        if isinstance(m, TensorStorageMetadata)
    }
    objects = {}
    for index, data in items(path):
        item = torch.load(io.BytesIO(data), weights_only=True)
        if index.fqn not in tensors:
            objects[index.fqn] = item
            continue
        whole = tensors[index.fqn]
        place = tuple(slice(o, o + n) for o, n in zip(index.offset, item.shape))
        if item.dtype != whole.dtype:
            raise ValueError(f"{index}: item is {item.dtype}, metadata say {whole.dtype}")
        if item.numel():
            copy_bits(whole[place], item)
    return tensors, objects


def copy_bits(to, source):
    """copy_, also for dtypes that torch can't copy."""
    if to.dtype.itemsize == 1:
        to, source = to.view(torch.uint8), source.view(torch.uint8)
    to.copy_(source)

# SPDX-License-Identifier: Apache-2.0
"""Reads safetensors byte by byte, so that no library's missing dtypes are in the way."""

import json
import math
import pathlib

import torch

CODES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F4": "float4_e2m1fn_x2",
}


def read_file(path):
    """name -> tensor, in the order of the data; raises if the file has gaps or overlaps."""
    data = pathlib.Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors, end = {}, 0
    for name, fields in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype = getattr(torch, CODES[fields["dtype"]])
        shape = list(fields["shape"])
        if dtype == torch.float4_e2m1fn_x2:  # the file counts values, torch pairs of them
            shape[-1] //= 2
        begin, stop = fields["data_offsets"]
        if begin != end or stop - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{path}: {name} lies at {begin} to {stop}, expected from {end} on")
        end = stop
        raw = torch.frombuffer(
            bytearray(data[8 + length + begin : 8 + length + stop]) or bytearray(1),
            dtype=torch.uint8,
        )[: stop - begin]
        tensors[name] = raw.clone().view(dtype).reshape(shape)
    if 8 + length + end != len(data):
        raise ValueError(f"{path}: {len(data) - 8 - length - end} bytes too many")
    return tensors


def read_folder(path):
    """A folder with an index; every tensor must be in the file that the index names."""
    path = pathlib.Path(path)
    index = json.loads((path / "model.safetensors.index.json").read_text())["weight_map"]
    files = {name: read_file(path / name) for name in set(index.values())}
    if sum(map(len, files.values())) != len(index):
        raise ValueError("the files have tensors that the index does not name")
    return {name: files[file][name] for name, file in index.items()}

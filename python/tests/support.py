# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the package. They use the standard library only; what needs numpy, ml_dtypes or torch is skipped
where it is missing."""

import importlib.util
import json
import pathlib
import shutil
import struct
import tempfile
import unittest


def installed(name):
    return importlib.util.find_spec(name) is not None


needs_numpy = unittest.skipUnless(installed("numpy"), "numpy is not installed")
needs_torch = unittest.skipUnless(installed("torch"), "torch is not installed")
needs_safetensors = unittest.skipUnless(installed("safetensors") and installed("torch"), "safetensors or torch is not installed")

# safetensors' names, torch's, and the bytes of an element
DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
    "C64": ("complex64", 8),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
}
PLAIN = frozenset(name for name in DTYPES if not name.startswith(("F8", "BF")))  # numpy and the buffer protocol have them


def write_safetensors(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes or their number, which are then a hole)."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        size = data if isinstance(data, int) else len(data)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        start = f.tell()
        for name, (_, _, data) in tensors.items():
            if not isinstance(data, int):
                f.seek(start + header[name]["data_offsets"][0])
                f.write(data)
        f.truncate(start + at)
    return path


def pattern(size):
    """Bytes that differ from place to place, and are valid as bool."""
    return bytes(i * 7 % 251 for i in range(size))


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reshard-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def file(self, tensors, name="x.safetensors", **more):
        return write_safetensors(self.folder / name, tensors, **more)


def rss():
    """Resident memory in bytes."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096

# SPDX-License-Identifier: Apache-2.0
"""make_bombs.py FOLDER: small files that once took memory or time out of proportion."""
import json
import os
import struct
import sys
import zipfile

FOLDER = sys.argv[1]
PROTO = b"\x80\x02"


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s


def save(name, pickle):
    with zipfile.ZipFile(os.path.join(FOLDER, name + ".pt"), "w") as z:
        z.writestr("a/data.pkl", PROTO + pickle + b".")
        z.writestr("a/byteorder", "little")
        z.writestr("a/version", "3\n")


def repeated(first):
    """{'k': [first, first, ...]}, each but the first two bytes long"""
    return b"}" + text(b"k") + b"](" + first + b"q\x00" + b"h\x00" * 500000 + b"es"


save("text", repeated(text(b"x" * 1000)))
save("bytes", repeated(b"c_codecs\nencode\n" + text(b"x" * 1000) + text(b"latin1") + b"\x86R"))
save("number", repeated(b"\x8a\xff" + b"\x7f" * 255))
save("tuple", repeated(b"(" + b"K\x01" * 32 + b"t"))
save("object", repeated(b"cfoo\nbar\n(" + b"K\x01" * 100 + b"tR"))
lists = b"](" + b"K\x01" * 10 + b"eq\x00"
for i in range(1, 30):
    lists += b"](" + (b"h" + bytes([i - 1])) * 10 + b"eq" + bytes([i])
save("laughs", lists)
save("class_without_end", b"c" + b"a" * 4000000)
keys = b"".join(text(b"%d" % i) + b"K\x01" for i in range(20000))
save("names", b"}" + text(b"a" * 60000) + b"}(" + keys + b"us")


def safetensors(name, header, data=b""):
    raw = json.dumps(header, separators=(",", ":")).encode()
    with open(os.path.join(FOLDER, name + ".safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw + data)


one = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
safetensors("side", {"w": one}, b"x")
with open(os.path.join(FOLDER, "side.safetensors.reshard-sums"), "wb") as f:
    f.truncate(1 << 30)
for name, n in ("many", 50000), ("lots", 200000):
    tensors = {f"model.layers.{i}.mlp.weight": {**one, "data_offsets": [i, i + 1]} for i in range(n)}
    safetensors(name, tensors, b"x" * n)

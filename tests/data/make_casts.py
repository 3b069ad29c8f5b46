# SPDX-License-Identifier: Apache-2.0
"""Writes casts.txt: for each pair of dtypes the CRC32 of what torch's .to() makes of the inputs that test_cast.c
makes in the same way. NaN has one pattern, and floats that an integer can't hold are 0 on both sides."""
import zlib

import numpy as np
import torch

TYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
    "float64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
N = 1 << 17


def bits(name):
    """All patterns of a short type; of a long one N that are spread, then N of moderate size."""
    size = getattr(torch, name).itemsize
    if name == "bool":
        return np.arange(2, dtype=np.uint8)
    if size < 4:
        return np.arange(1 << (8 * size), dtype=UINT[size])
    i = np.arange(2 * N, dtype=np.uint64)
    x = i * np.uint64(0x9E3779B97F4A7C15)
    y = x[N:]
    if name == "float64":
        y = (y & np.uint64(0x800FFFFFFFFFFFFF)) | ((np.uint64(973) + i[N:] % np.uint64(100)) << np.uint64(52))
    elif name == "float32":
        y = (y >> np.uint64(32)) & np.uint64(0x807FFFFF) | ((np.uint64(77) + i[N:] % np.uint64(100)) << np.uint64(23))
        x = x >> np.uint64(32)
    else:
        y = y >> (i[N:] % np.uint64(8 * size) + np.uint64(64 - 8 * size))
        x = x >> np.uint64(64 - 8 * size)
    x = np.concatenate([x[:N], y])
    return x.astype(UINT[size])


def tensor(raw, name):
    return torch.from_numpy(raw.view(np.uint8).copy()).view(getattr(torch, name))


def is_float(name):
    return "float" in name


def limits(name):
    if name == "bool":
        return -np.inf, np.inf
    info = torch.iinfo(getattr(torch, name))
    return float(info.min), float(info.max)


def main():
    with open("casts.txt", "w") as out:
        for src in TYPES:
            raw = bits(src)
            for dst in TYPES:
                if src == dst:
                    continue
                x = tensor(raw, src)
                if is_float(src) and not is_float(dst) and dst != "bool":
                    low, high = limits(dst)
                    d = x.to(torch.float64) if src != "float64" else x
                    keep = (d > low - 1) & (d < high + 1)
                    r = raw.copy()
                    r[~keep.numpy()] = 0
                    x = tensor(r, src)
                y = x.to(getattr(torch, dst))
                z = y.view(torch.uint8).numpy().view(UINT[getattr(torch, dst).itemsize]).copy()
                if is_float(dst):
                    wide = y if dst == "float64" else y.to(torch.float32)
                    z[torch.isnan(wide).numpy()] = 0x77
                out.write(f"{src} {dst} {zlib.crc32(z.tobytes()):08x}\n")


main()

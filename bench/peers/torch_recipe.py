#!/usr/bin/env python3
"""PyTorch's side of the recipe benchmark: a script as people write it, one layer at a time.

torch_recipe.py SOURCE reads lines "convert PATH" from stdin, fuses q, k and v of each layer of the safetensors file SOURCE,
writes PATH and answers each with one line, the seconds that it took, or "error: ...".
"""

import json
import struct
import sys
import time

import torch
from safetensors import safe_open

GROUPS, SIZE = 8, 128


def fuse(source, i):
    q, k, v = (source.get_tensor(f"model.layers.{i}.self_attn.{n}_proj.weight") for n in "qkv")
    h = q.shape[1]
    parts = [t.view(GROUPS, -1, h) for t in (q, k, v)]
    return torch.cat(parts, 1).reshape(-1, h)


def convert(path, to):
    """Streams: one layer in memory, written behind a header made from the shapes."""
    with safe_open(path, "pt") as source, open(to, "wb") as out:
        layers = sorted({int(n.split(".")[2]) for n in source.keys()})
        rows = sum(source.get_slice(f"model.layers.0.self_attn.{n}_proj.weight").get_shape()[0] for n in "qkv")
        cols = source.get_slice("model.layers.0.self_attn.q_proj.weight").get_shape()[1]
        size = rows * cols * 2
        header = {f"layers.{i}.qkv": {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [k * size, (k + 1) * size]} for k, i in enumerate(layers)}
        text = json.dumps(header).encode()
        out.write(struct.pack("<Q", len(text)) + text)
        for i in layers:
            out.write(fuse(source, i).view(torch.uint8).numpy().data)


def main():
    for line in sys.stdin:
        path = line.rstrip("\n").split(" ", 1)[1]
        try:
            start = time.monotonic()
            convert(sys.argv[1], path)
            print(time.monotonic() - start, flush=True)
        except Exception as e:  # the harness prints it
            print("error:", " ".join(str(e).split()), flush=True)


main()

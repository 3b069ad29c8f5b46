# SPDX-License-Identifier: Apache-2.0
"""What bench_hf.c asks for: load_hf.py FOLDER BYTES. Reads "COMMAND PATH" lines, answers each with seconds or a reason.

Every contender loads one safetensors file of eight bfloat16 matrices from the page cache into memory on the CPU, as torch
tensors, until one byte of each page has been looked at (with ".own": written, as a program that changes the tensors does):

    ours               reshard.open(path, "pt").load(): fresh memory, metadata compared with the checksum file, rows hashed
    ours.reused        the same into tensors of an earlier load
    safetensors        safetensors.torch.load_file: maps the file's own pages and copies those that are written, nothing is checked
    fastsafetensors    fastsafe_open on the CPU, without GDS: fresh memory, nothing is checked
    runai              runai_model_streamer.SafetensorsStreamer: fresh memory, nothing is checked
    tensorstore        the same bytes as a zarr3 array with a CRC32C for each chunk of 4 MiB: fresh memory, checked"""

import os
import sys
import time

import torch

ROWS = 8


def matrices(count):
    side = count // ROWS // 2 // 4096
    generator = torch.Generator().manual_seed(1)
    for i in range(ROWS):
        yield f"model.layers.{i}.weight", torch.randn(side, 4096, generator=generator).to(torch.bfloat16)


def look(tensors, own=False):
    for t in tensors:
        pages = t.reshape(-1).view(torch.uint8)[::4096]
        pages.add_(0) if own else pages.sum()


def make(path, count):
    import reshard

    if not os.path.exists(path):
        reshard.save(path, dict(matrices(count)))


def package(_path):
    import reshard  # noqa: F401


def ours(path, own=False):
    import reshard

    with reshard.open(path, "pt") as ck:
        found = ck.load()
    look(found.values(), own)
    return found


def ours_own(path):
    return ours(path, own=True)


KEPT = {}


def ours_reused(path):
    import reshard

    if not KEPT:
        KEPT.update(ours(path))
    start = time.monotonic()
    with reshard.open(path, "pt") as ck:
        ck.load(into=KEPT)
    look(KEPT.values())
    return time.monotonic() - start


def safetensors(path, own=False):
    from safetensors.torch import load_file

    found = load_file(path)
    look(found.values(), own)
    return found


def safetensors_own(path):
    return safetensors(path, own=True)


def fastsafetensors(path):
    from fastsafetensors import fastsafe_open

    with fastsafe_open(filenames=[path], nogds=True, device="cpu", debug_log=False) as file:
        look(file.get_tensor(key) for key in file.keys())


def runai(path):
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        look(tensor for _, tensor in streamer.get_tensors())


def zarr(path):
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": path + ".zarr"}}


def tensorstore(path):
    import tensorstore as ts

    found = torch.from_numpy(ts.open(zarr(path)).result().read().result())
    look([found])
    return found


def tensorstore_make(path, count):
    import tensorstore as ts

    if os.path.exists(path + ".zarr"):
        return
    data = torch.cat([t.reshape(-1).view(torch.uint8) for _, t in matrices(count)]).numpy()
    codecs = [{"name": "bytes"}, {"name": "crc32c"}]
    chunks = {"name": "regular", "configuration": {"chunk_shape": [4 << 20]}}
    meta = {"shape": [data.size], "data_type": "uint8", "codecs": codecs, "chunk_grid": chunks}
    ts.open({**zarr(path), "metadata": meta}, create=True).result().write(data).result()


def main():
    count = int(sys.argv[2])
    for line in sys.stdin:
        command, path = line.split()
        try:
            if command in ("make", "tensorstore.make"):
                (make if command == "make" else tensorstore_make)(path, count)
                print(0.0, flush=True)
                continue
            work = globals()[command.replace(".", "_")]
            start = time.monotonic()
            kept = work(path)
            seconds = time.monotonic() - start
            print(kept if isinstance(kept, float) else seconds, flush=True)
            del kept
        except Exception as reason:  # pylint: disable=broad-exception-caught
            print(f"{type(reason).__name__}: {reason}".replace("\n", " ")[:200], flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Finds out what the PyTorch that runs it loads of what we write: golden/matrix/torch-X.Y/LOADS.

    v/bin/python make_loads.py PATH_TO_reshard      v as for make_matrix.py, whose files of torch 2.13 are converted

A line for each form: its name, a tab, "ok" or the reason. Run by hand, never in CI; make_compatibility.py makes the table.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

import states  # noqa: E402
import values  # noqa: E402

MATRIX = HERE / "golden" / "matrix"
VERSION = ".".join(torch.__version__.split(".")[:2])
ROWS = ["--layout", "mesh a=3; * shard(0)@a"]


def expected(cell):
    """Tensors and objects by name, as make_matrix.py listed them."""
    lines = [json.loads(line) for line in (MATRIX / "torch-2.13" / f"{cell}.json").read_text().splitlines()]
    return {line["name"]: line for line in lines}


def zeros(line):
    return values.zeros(getattr(torch, line["dtype"]), tuple(line["shape"])) if "dtype" in line else 0


def compare(got, want):
    for name, line in want.items():
        value = got[name]
        if "dtype" not in line:
            assert values.to_json(value) == line["value"], f"{name} is {value!r}"
        else:
            assert list(value.shape) == line["shape"] and values.raw_bytes(value).hex() == line["bytes"], f"{name} differs"


def load(state, reader):
    reader.read_metadata()
    try:
        dcp.load(state, storage_reader=reader)
    except ValueError:  # torch 2.2 asks for a process group
        dcp.load_state_dict(state, reader, no_dist=True)


def by_dcp(path, want):
    state = {name: zeros(line) for name, line in want.items()}
    load(state, dcp.FileSystemReader(str(path)))
    compare(state, want)


def by_dcp_decoding(path, want):
    import torch.distributed.checkpoint._extension  # noqa: F401

    by_dcp(path, want)


def by_torch_load(path, want):
    compare(states.flatten_as_we_do(torch.load(path, weights_only=True)), want)


def by_hf_storage(path, want):
    try:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader as Reader
    except ImportError:
        from torch.distributed.checkpoint import HuggingFaceStorageReader as Reader
    want = {name: line for name, line in want.items() if "dtype" in line}
    state = {name: zeros(line) for name, line in want.items()}
    load(state, Reader(str(path)))
    compare(state, want)


def by_safetensors(path, want):
    from safetensors.torch import load_file

    got = {}
    for file in pathlib.Path(path).glob("*.safetensors"):
        got |= load_file(file)
    compare(got, {name: line for name, line in want.items() if "dtype" in line})


# form -> source, name of the result, options, what loads it
FORMS = {
    "DCP": ("plain", "plain", [], by_dcp),
    "DCP, nested": ("nested", "nested", [], by_dcp),
    "DCP, on three ranks": ("fsdp2", "sharded", ROWS, by_dcp),
    "DCP, zstd": ("plain", "zstd", ["--compress", "zstd"], by_dcp_decoding),
    "torch.save, `weights_only`": ("torch_save.pt", "nested.pt", [], by_torch_load),
    "Hugging Face folder, by DCP": ("fsdp2", "hf", ["--to", "safetensors", "--shard-size", "100"], by_hf_storage),
    "Hugging Face folder, by safetensors": ("fsdp2", "hf2", ["--to", "safetensors", "--shard-size", "100"], by_safetensors),
}


def attempt(tool, folder, source, name, options, check):
    made = pathlib.Path(folder) / name
    subprocess.run([tool, "convert", "-q", *options, str(MATRIX / "torch-2.13" / source), str(made)], check=True)
    try:
        check(made, expected(source))
    except BaseException as e:  # torch has errors of this kind
        last = f"{type(e).__name__}: {e}".strip().splitlines()[-1]  # of a traceback inside
        return re.split(r" on <| from | \(/", last)[0].strip()
    return "ok"


def main():
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{form}\t{attempt(sys.argv[1], folder, *how)}\n" for form, how in FORMS.items()]
    (MATRIX / f"torch-{VERSION}" / "LOADS").write_text("".join(lines))
    sys.stdout.writelines(lines)


if __name__ == "__main__":
    main()

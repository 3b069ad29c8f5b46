# SPDX-License-Identifier: Apache-2.0
"""Loads one tensor-parallel rank's slice of a Hugging Face model, reading only those bytes; no ranks, no process group:

    python load_slice.py FOLDER RANK RANKS"""

import sys

import reshard

ROWS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight", "lm_head.weight")
COLUMNS = ("o_proj.weight", "down_proj.weight")


def mine(tensor, rank, ranks):
    """The index of this rank's part: rows, columns, or all of it."""
    dim = 0 if tensor.name.endswith(ROWS) else 1 if tensor.name.endswith(COLUMNS) else None
    if dim is None:
        return ...
    each = -(-tensor.shape[dim] // ranks)
    return (slice(None),) * dim + (slice(rank * each, (rank + 1) * each),)


def main():
    folder, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with reshard.open(folder, "pt") as model:
        part = model.load([(name, mine(model[name], rank, ranks)) for name in model])
        whole = sum(tensor.nbytes for tensor in model.values())
    for name, x in part.items():
        print(f"{name} {tuple(x.shape)}")
    print(f"{sum(x.nbytes for x in part.values())} of {whole} bytes")


if __name__ == "__main__":
    main()

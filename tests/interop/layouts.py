# SPDX-License-Identifier: Apache-2.0
"""Tensors on meshes of four ranks, written down once for torch and for our rules."""

import dataclasses
import re

import torch

import values

# name: (shape, axis names, ranks in row-major order)
MESHES = {
    "4": ((4,), ("a",), (0, 1, 2, 3)),
    "2x2": ((2, 2), ("a", "b"), (0, 1, 2, 3)),
    "even": ((2,), ("a",), (0, 2)),  # of 2x2, where b = 0
    "2": ((2,), ("a",), (0, 1)),
}


@dataclasses.dataclass(frozen=True)
class Spec:
    """A tensor and how it is laid out: one of S<dim>, R, X<dim>/<split> for each axis."""

    name: str
    shape: tuple
    place: str
    mesh: str = "4"
    dtype: torch.dtype = torch.float32

    def full(self):
        return values.make(self.name, self.dtype, self.shape)

    def rule(self):
        """The line of our rules that says the same."""
        words = []
        for axis, place in zip(MESHES[self.mesh][1], self.place.split()):
            strided = re.fullmatch(r"X(\d+)/(\d+)", place)
            if strided:
                words.append(f"strided({strided[1]},{strided[2]})@{axis}")
            elif place[0] == "S":
                words.append(f"shard({place[1:]})@{axis}")
        words = words or ["replicate"]
        return f"{self.name} {' '.join(words)}" + (" on b=0" if self.mesh == "even" else "")


def rules(specs, mesh):
    """Our rules for all of them; `mesh` is that of the whole job."""
    shape, axes, ranks = MESHES[mesh]
    head = "mesh " + " ".join(f"{a}={n}" for a, n in zip(axes, shape))
    return "\n".join([head] + [spec.rule() for spec in specs])


DTYPES = [Spec("w." + values.dtype_name(d), (7, 6), "S0", dtype=d) for d in values.DTYPES]

ONE_DIM = [
    Spec("row", (8, 6), "S0"),
    Spec("column", (6, 8), "S1", dtype=torch.bfloat16),
    Spec("uneven", (14, 1), "S0"),
    Spec("uneven_column", (3, 10), "S1", dtype=torch.int16),
    Spec("empty_shards", (2, 3), "S0", dtype=torch.int64),
    Spec("one_element", (1,), "S0"),
    Spec("middle", (3, 6, 5), "S1", dtype=torch.float64),
    Spec("replicated", (5, 3), "R", dtype=torch.uint8),
    Spec("scalar", (), "R"),
    Spec("no_rows", (0, 4), "S0"),
    Spec("no_columns", (4, 0), "S0"),
]

TWO_DIMS = [
    Spec("blocks", (8, 6), "S0 S1", "2x2"),
    Spec("blocks_swapped", (7, 5), "S1 S0", "2x2", torch.float16),
    Spec("nested", (10, 3), "S0 S0", "2x2"),
    Spec("nested_few", (3, 2), "S0 S0", "2x2", torch.int32),
    Spec("strided", (8, 3), "X0/2 S0", "2x2", torch.bfloat16),
    Spec("strided_column", (3, 12), "X1/2 S1", "2x2"),
    Spec("hsdp", (6, 4), "R S0", "2x2"),
    Spec("rows_of_groups", (6, 4), "S0 R", "2x2"),
    Spec("everywhere", (3, 3), "R R", "2x2"),
    Spec("even_sharded", (6,), "S0", "even"),
    Spec("even_replicated", (6,), "R", "even", torch.int64),
    Spec("four_dims", (4, 3, 2, 5), "S3 S0", "2x2", torch.complex64),
]

# Explicit boxes, several for some ranks: rank -> [(offset, sizes)]
BOXES = {
    "boxes_uneven": (
        (16, 1),
        [[((0, 0), (4, 1))], [((4, 0), (3, 1))], [((7, 0), (4, 1))], [((11, 0), (5, 1))]],
    ),
    "boxes_several": ((8, 8), [[((2 * r, 0), (2, 3)), ((2 * r, 3), (2, 5))] for r in range(4)]),
}

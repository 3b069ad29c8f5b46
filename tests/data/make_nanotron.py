# SPDX-License-Identifier: Apache-2.0
"""Makes golden/folders/nanotron: what nanotron's save_weights leaves on two tensor-parallel and two pipeline ranks, and
nanotron_optimizer: what its save_optimizer leaves with ZeRO-1 on two pipeline and two data-parallel ranks. Run by hand; nanotron
itself needs GPUs, so its file names, metadata and values are written here as its serialize/*.py and optim/*.py have them.
Standard library only.
"""

import json
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from bad_nanotron import file, optimizer, part, state  # noqa: E402

TOP = HERE / "golden" / "folders" / "nanotron"


def floats(*shape, first=0):
    n = 1
    for size in shape:
        n *= size
    return struct.pack(f"<{n}f", *(first + i for i in range(n)))


def rows(data, shape, *spans):
    """Rows of a matrix, each span after the other."""
    width = 4 * shape[1]
    return b"".join(data[a * width : b * width] for a, b in spans)


def columns(data, shape, a, b):
    width = 4 * shape[1]
    return b"".join(data[r * width + 4 * a : r * width + 4 * b] for r in range(shape[0]))


def main():
    whole = {
        "model.token_position_embeddings.pp_block.token_embedding.weight": (8, 3),  # by rows
        "model.decoder.0.pp_block.attn.qkv_proj.weight": (8, 4),  # q and k, v: each by rows
        "model.decoder.1.pp_block.mlp.down_proj.weight": (3, 6),  # by columns
        "model.final_layer_norm.pp_block.weight": (5,),  # not cut
    }
    data = {name: floats(*shape, first=100 * i) for i, (name, shape) in enumerate(whole.items())}
    embedding, qkv, down, norm = whole
    files = {part(norm): file(whole[norm], data[norm])}
    for r in range(2):
        a, b = 4 * r, 4 * r + 4
        slices = f"None,None,None|None,None,None#{a},{b},None|None,None,None"
        files[part(embedding, 0, r)] = file((4, 3), rows(data[embedding], (8, 3), (a, b)), slices, "(8, 3)")
        q, kv = (2 * r, 2 * r + 2), (4 + 2 * r, 6 + 2 * r)
        slices = f"0,2,None|None,None,None#{q[0]},{q[1]},None|None,None,None"
        slices += f";2,4,None|None,None,None#{kv[0]},{kv[1]},None|None,None,None"
        files[part(qkv, 0, r)] = file((4, 4), rows(data[qkv], (8, 4), q, kv), slices, "(np.int64(8), 4)")
        slices = f"None,None,None|None,None,None#None,None,None|{3 * r},{3 * r + 3},None"
        files[part(down, 1, r)] = file((3, 3), columns(data[down], (3, 6), 3 * r, 3 * r + 3), slices, "(3, 6)")
    files["checkpoint_metadata.json"] = b'{"version": "1.5", "tp": 2, "dp": 1}\n'
    for name, raw in files.items():
        path = TOP / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    lines = [{"name": n, "dtype": "float32", "shape": list(whole[n]), "bytes": data[n].hex()} for n in sorted(whole)]
    TOP.with_suffix(".json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def listed(name, shape, first):
    n = 1
    for size in shape:
        n *= size
    return {"name": f"optim.{name}", "dtype": "float32", "shape": list(shape), "bytes": floats(n, first=first).hex()}


def save_optimizer():
    """5 elements are divided into 3 and 2, one into 1 and none, for which the second rank has no entry."""
    pipes = [{"a.weight": (3, 5), "a.bias": (5,)}, {"b.weight": (4, 2), "b.scale": (1,)}]
    ranks, lines = [], []
    for p, shapes in enumerate(pipes):
        weights = {n: (shape, 100 * p + 40 * i) for i, (n, shape) in enumerate(shapes.items())}
        for r in range(2):
            moments = {}
            for i, (name, shape) in enumerate(shapes.items()):
                n = shape[0] * (shape[1] if len(shape) > 1 else 1)
                each = (n - 1) // 2 + 1
                if r == 0 or n > each:
                    moments[name] = (each if r == 0 else n - each, 10000 * p + 100 * i + each * r)
            ranks.append(state(moments, weights))
        for i, (name, shape) in enumerate(shapes.items()):
            lines += [listed(f"state.{name}.exp_avg", shape, 10000 * p + 100 * i), listed(f"state.{name}.exp_avg_sq", shape, 10000 * p + 100 * i + 1000)]
            lines += [listed(f"gradient_accumulator.{name}", shape, weights[name][1])]
            lines += [{"name": f"optim.state.{name}.step", "value": 7}]
    top = TOP.with_name("nanotron_optimizer")
    top.mkdir(exist_ok=True)
    for name, raw in optimizer(*ranks, pp=2).items():
        (top / name).write_bytes(raw)
    lines.append({"name": "optim.param_groups.0.lr", "value": 1})
    top.with_suffix(".json").write_text("".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda x: x["name"])))


if __name__ == "__main__":
    main()
    save_optimizer()

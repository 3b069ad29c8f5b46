# SPDX-License-Identifier: Apache-2.0
"""Puts the tables of versions into docs/compatibility.md: what is read, from the listings in golden/matrix, and what each
version loads, from the LOADS files there. Standard library only.

    python3 make_compatibility.py          writes them anew
    python3 make_compatibility.py --check  only compares
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "compatibility.md"
BEGIN, END = "<!-- versions: made by tests/data/make_compatibility.py -->\n", "<!-- end -->\n"
FOLDERS = sorted((HERE / "golden" / "matrix").glob("torch-*"), key=lambda f: [int(n) for n in f.name[6:].split(".")])


def version(folder):
    return folder.name.removeprefix("torch-")


def table(folders, rows):
    """`rows`: pairs of a name and the cells, one for each folder."""
    lines = ["| | " + " | ".join(map(version, folders)) + " |", "|---" * (len(folders) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows]
    return "".join(line + "\n" for line in lines)


def read_by_us():
    cells = sorted({f.name.rsplit(".", 1)[0] for folder in FOLDERS for f in folder.iterdir() if f.suffix in (".json", ".absent")})
    return table(FOLDERS, [(f"`{c}`", ["read" if (f / f"{c}.json").exists() else "–" for f in FOLDERS]) for c in cells])


def loads_of(folder):
    return dict(line.split("\t") for line in (folder / "LOADS").read_text().splitlines())


def loaded_by_torch():
    folders = [f for f in FOLDERS if (f / "LOADS").exists()]
    loads = [loads_of(f) for f in folders]
    rows = [(form, ["loads" if l[form] == "ok" else "–" for l in loads]) for form in loads[-1]]
    oldest = next(version(f) for f, l in zip(folders, loads) if l["DCP"] == "ok")
    return table(folders, rows) + f"\nThe oldest of these that loads our DCP checkpoints is torch {oldest}.\n"


def main():
    text = PAGE.read_text()
    new, rest = "", text
    for make in (read_by_us, loaded_by_torch):
        before, rest = rest.split(BEGIN, 1)
        new += before + BEGIN + make() + END
        rest = rest.split(END, 1)[1]
    new += rest
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == text else "docs/compatibility.md is not what make_compatibility.py writes")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()

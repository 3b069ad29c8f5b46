# SPDX-License-Identifier: Apache-2.0
"""Puts the table of versions into docs/compatibility.md, from the listings in golden/matrix. Standard library only.

    python3 make_compatibility.py          writes it anew
    python3 make_compatibility.py --check  only compares
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "compatibility.md"
BEGIN, END = "<!-- versions: made by tests/data/make_compatibility.py -->\n", "<!-- end -->\n"


def table():
    folders = sorted((HERE / "golden" / "matrix").glob("torch-*"), key=lambda f: [int(n) for n in f.name[6:].split(".")])
    cells = sorted({f.name.rsplit(".", 1)[0] for folder in folders for f in folder.iterdir() if f.suffix in (".json", ".absent")})
    lines = ["| | " + " | ".join(f.name[6:] for f in folders) + " |", "|---" * (len(folders) + 1) + "|"]
    for cell in cells:
        made = ["read" if (f / f"{cell}.json").exists() else "–" for f in folders]
        lines.append(f"| `{cell}` | " + " | ".join(made) + " |")
    return "".join(line + "\n" for line in lines)


def main():
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    new = before + BEGIN + table() + END + rest.split(END)[1]
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == text else "docs/compatibility.md is not what make_compatibility.py writes")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()

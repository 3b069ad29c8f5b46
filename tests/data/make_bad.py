# SPDX-License-Identifier: Apache-2.0
"""Makes the broken checkpoints in bad/, each of which breaks one rule. Standard library only; the
result is the same every time.

    python3 make_bad.py          writes them anew
    python3 make_bad.py --check  only compares them with what would be written

What must be said about each stands in bad/EXPECTED, which is kept by hand: this script only sees to
it that the table and the cases are about the same paths. test_bad_input.c goes through the table.

A case is a path below bad/ and its content: bytes for a file, a dict for a folder of files.
"""

import pathlib
import shutil
import sys

import bad_archives
import bad_dcp
import bad_files
import bad_legacy
import bad_nanotron
import bad_ranks
import bad_zero

HERE = pathlib.Path(__file__).parent / "bad"
TABLE = HERE / "EXPECTED"


def files_of(cases):
    """The bytes of each file, by its path."""
    files = {}
    for path, content in cases:
        for name, raw in content.items() if isinstance(content, dict) else [("", content)]:
            full = path + "/" + name if name else path
            assert full not in files and len(raw) < 65536, full
            files[full] = raw
    assert sum(map(len, files.values())) < 5 << 18
    return files


def check_table(cases):
    listed = [line.split("\t")[0] for line in TABLE.read_text().splitlines() if line[0] != "#"]
    wrong = sorted(set(listed) ^ {path for path, _ in cases})
    if wrong or len(listed) != len(set(listed)) or len(listed) != len(cases):
        sys.exit("the table and the cases differ: " + ", ".join(wrong or ["a path is there twice"]))


def check_files(files):
    there = {p.relative_to(HERE).as_posix(): p.read_bytes() for p in HERE.rglob("*") if p.is_file()}
    del there[TABLE.name]
    wrong = sorted(name for name in files.keys() | there.keys() if files.get(name) != there.get(name))
    if wrong:
        sys.exit("the files differ: " + ", ".join(wrong))


def main():
    parts = (bad_files, bad_archives, bad_dcp, bad_legacy, bad_nanotron, bad_ranks, bad_zero)
    cases = [case for part in parts for case in part.cases()]
    files = files_of(cases)
    if "--check" not in sys.argv[1:]:
        for old in HERE.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
        for name, raw in files.items():
            path = HERE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
    check_table(cases)
    check_files(files)
    print(len(cases), "cases,", sum(map(len, files.values())), "bytes")


if __name__ == "__main__":
    main()

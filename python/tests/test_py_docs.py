# SPDX-License-Identifier: Apache-2.0
"""The Python code that README.md and docs/ show: it runs, and prints what the comments say."""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys

from support import Case, needs_torch

TOP = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(<!-- by hand: [^\n]*-->\n)?```python\n(.*?)^```$", re.M | re.S)
PRINTS = re.compile(r"print\(.*\)\s+# (.*)$", re.M)


class Documents(Case):
    def run_document(self, path):
        blocks = [block for by_hand, block in BLOCK.findall(path.read_text(encoding="utf-8")) if not by_hand]
        subprocess.run([sys.executable, "-m", "reshard", "demo", "--dir", self.folder / "tour"], check=True, capture_output=True)
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        names = {}
        for block in blocks:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block, str(path), "exec"), names)  # pylint: disable=exec-used
            self.assertEqual(out.getvalue().splitlines(), PRINTS.findall(block))
        return len(blocks)

    def test_the_reference(self):
        self.assertGreater(self.run_document(TOP / "docs" / "python.md"), 3)

    @needs_torch
    def test_saving_and_loading_on_ranks(self):
        self.assertGreater(self.run_document(TOP / "docs" / "torch_ranks.md"), 1)

    @needs_torch
    def test_the_reference_of_the_storage_classes(self):
        self.assertGreater(self.run_document(TOP / "docs" / "torch.md"), 0)

    @needs_torch
    def test_the_tutorial(self):
        self.assertGreater(self.run_document(TOP / "docs" / "tutorial.md"), 3)

    def test_how_to_convert(self):
        self.assertGreater(self.run_document(TOP / "docs" / "convert.md"), 0)

    def test_what_to_do_about_errors(self):
        self.assertGreater(self.run_document(TOP / "docs" / "errors.md"), 0)

    def test_every_document_with_python_is_run(self):
        here = pathlib.Path(__file__).read_text(encoding="utf-8")
        for path in (TOP / "docs").glob("*.md"):
            if any(not by_hand for by_hand, _ in BLOCK.findall(path.read_text(encoding="utf-8"))):
                self.assertIn(f'"{path.name}"', here)

    def test_the_readme(self):
        self.assertGreater(self.run_document(TOP / "README.md"), 0)

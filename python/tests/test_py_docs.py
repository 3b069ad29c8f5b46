# SPDX-License-Identifier: Apache-2.0
"""The Python code that README.md, docs/python.md and docs/torch.md show: it runs, and prints what the comments say."""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys

from support import Case, needs_torch

TOP = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PRINTS = re.compile(r"print\(.*\)\s+# (.*)$", re.M)


class Documents(Case):
    def run_document(self, path):
        blocks = [b for b in BLOCK.findall(path.read_text(encoding="utf-8")) if not b.startswith("# by hand:")]
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

    def test_the_readme(self):
        self.assertGreater(self.run_document(TOP / "README.md"), 0)

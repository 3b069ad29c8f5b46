# SPDX-License-Identifier: Apache-2.0
"""Runs ckpt_copy and reads what it lists; runs the command-line tool."""

import json
import pathlib
import subprocess
import tempfile

import torch


class ToolError(Exception):
    pass


class Entry:
    """One tensor of a listing."""

    def __init__(self, fields, folder):
        self.name = fields["name"]
        self.dtype = fields["dtype"]
        self.shape = tuple(fields["shape"])
        self.path = tuple(fields["path"])
        self.chunks = fields["chunks"]
        self.bytes = (folder / fields["file"]).read_bytes()

    def boxes(self):
        return sorted((tuple(c["off"]), tuple(c["len"])) for c in self.chunks)

    def tensor(self):
        raw = (
            torch.frombuffer(bytearray(self.bytes), dtype=torch.uint8)
            if self.bytes
            else torch.empty(0, dtype=torch.uint8)
        )
        return raw.view(getattr(torch, self.dtype)).reshape(self.shape)


class Listing:
    def __init__(self, folder):
        listing = json.loads((folder / "list.json").read_text())
        self.format = listing["format"]
        self.damages = listing["damages"]
        self.tensors = {t["name"]: Entry(t, folder) for t in listing["tensors"]}
        self.objects = {o["name"]: o["value"] for o in listing["objects"]}
        self.paths = {o["name"]: tuple(o["path"]) for o in listing["objects"]}
        self.paths.update({t.name: t.path for t in self.tensors.values()})


def run_program(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise ToolError(done.stderr.strip()[-600:] or f"exit code {done.returncode}")


class Reshard:
    """The tool that people use."""

    def __init__(self, program):
        self.program = program

    def convert(self, src, dst, *options):
        run_program(self.program, "convert", "--quiet", *options, src, dst)


class Tool:
    def __init__(self, program):
        self.program = program

    def _run(self, *args):
        run_program(self.program, *args)

    def dump(self, src):
        with tempfile.TemporaryDirectory() as folder:
            self._run("dump", src, folder)
            return Listing(pathlib.Path(folder))

    def copy(
        self,
        src,
        dst,
        format=None,
        layout=None,
        distributed=False,
        shard_size=None,
        transform=None,
        slices=False,
    ):
        args = ["copy", src, dst]
        for name, value in (
            ("--format", format),
            ("--layout", layout),
            ("--shard-size", shard_size),
            ("--transform", transform),
        ):
            if value is not None:
                args += [name, value]
        args += ["--distributed"] * distributed + ["--slices"] * slices
        self._run(*args)
        return dst

# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python."""

import array
import os
import pathlib
import re
import subprocess
import sys
import unittest

from support import Case, needs_torch

import reshard

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


@needs_torch
class Programs(Case):
    """Run as their comments say."""

    def torchrun(self, ranks, name, *args):
        """What rank 0 prints: the ranks are started directly, because torchrun is one more process that imports torch."""
        import torch.distributed as dist

        # Here, so that no port has to be free later; to the ranks it is that of torchrun.
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port), WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
        env["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-W", "ignore", str(EXAMPLES / name), *map(str, args)]
        processes = [
            subprocess.Popen(command, env=dict(env, RANK=str(r), LOCAL_RANK=str(r)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for r in range(ranks)
        ]
        outs = []
        for p in processes:
            try:
                outs.append(p.communicate(timeout=240))
            finally:
                p.kill()
        for p, (_, err) in zip(processes, outs):
            self.assertEqual(p.returncode, 0, err)
        return outs[0][0]

    def losses(self, *args):
        return {int(s): float(x) for s, x in re.findall(r"step (\d+) loss (\S+)", self.torchrun(*args))}

    def test_training_resumes_on_other_ranks_with_the_same_losses(self):
        whole = self.losses(4, "train.py", self.folder / "a", "--mesh", "2x2", "--until", 6, "--every", 9)
        first = self.losses(4, "train.py", self.folder / "b", "--mesh", "2x2", "--until", 3)
        rest = self.losses(2, "train.py", self.folder / "b", "--mesh", "1x2", "--until", 6)
        self.assertEqual((list(first), list(rest)), ([1, 2, 3], [4, 5, 6]))
        for step, loss in {**first, **rest}.items():
            self.assertAlmostEqual(loss, whole[step], delta=2e-5)
        self.assertEqual(reshard.Series(self.folder / "b").steps(), [3, 6])

    def test_a_slice_of_a_hugging_face_model(self):
        def floats(*shape):
            n = 1
            for s in shape:
                n *= s
            return memoryview(array.array("f", range(n))).cast("B").cast("f", shape)

        model = {"model.q_proj.weight": floats(8, 4), "model.down_proj.weight": floats(4, 8), "model.norm.weight": floats(4)}
        reshard.save(self.folder / "hf", model, format="safetensors", shard_size=150)
        command = [sys.executable, str(EXAMPLES / "load_slice.py"), str(self.folder / "hf"), "1", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        lines = sorted(done.stdout.splitlines())
        self.assertEqual(lines[0], "144 of 272 bytes")
        self.assertEqual(lines[1:], ["model.down_proj.weight (4, 4)", "model.norm.weight (4,)", "model.q_proj.weight (4, 4)"])

    def test_the_one_line_drop_in(self):
        self.assertEqual(self.torchrun(2, "drop_in.py", self.folder), "same: True\nchecksums: True\n")


if __name__ == "__main__":
    unittest.main()

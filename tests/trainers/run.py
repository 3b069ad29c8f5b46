# SPDX-License-Identifier: Apache-2.0
"""Tests with the libraries that write people's checkpoints: PYTHON tests/trainers/run.py --tool PATH_TO_ckpt_copy --reshard
PATH_TO_reshard [CASE...]

Each case of jobs.py writes a checkpoint on its ranks. reshard must give every live tensor bit for bit, agree with the
library's own converter where it has one, and make a Hugging Face folder that the real loader loads with the same bits. What
the library can't do without a GPU is skipped, with the reason.
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

from safetensors.torch import load_file  # noqa: E402

import jobs  # noqa: E402
import values  # noqa: E402
from report import Report  # noqa: E402
from tool import Reshard, Tool  # noqa: E402

SECONDS = 300  # for one case


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def write(case, folder):
    """Runs the ranks of a case; (exit code, last lines of the first that failed)."""
    count = jobs.CASES[case][0]
    env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(count)}
    env |= {"LOCAL_WORLD_SIZE": str(count), "LOCAL_SIZE": str(count), "DS_ACCELERATOR": "cpu"}
    env |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    logs = [open(folder / f"log.{r}", "w") for r in range(count)]
    args = [sys.executable, str(HERE / "jobs.py"), case, str(folder)]
    ranks = [
        subprocess.Popen(args, env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}, stdout=log, stderr=log)
        for r, log in enumerate(logs)
    ]
    try:
        codes = [p.wait(timeout=SECONDS) for p in ranks]
    except subprocess.TimeoutExpired:
        codes = [1] * count
    finally:
        for p in ranks:
            p.kill()
    failed = next((r for r, code in enumerate(codes) if code), None)
    if failed is None:
        return 0, ""
    lines = (folder / f"log.{failed}").read_text().splitlines()
    return codes[failed], lines[-1] if codes[failed] == jobs.SKIP and lines else " | ".join(lines[-4:])


def difference(got, want):
    for name, tensor in want.items():
        if name not in got:
            return f"{name} is missing"
        wrong = values.tensor_problem(got[name], tensor)
        if wrong:
            return f"{name} {wrong}"
    return None


def check_read(tool, folder, want):
    listing = tool.dump(folder / "ckpt")
    if listing.damages:
        return f"verify reports {listing.damages[0]}"
    return difference({name: entry.tensor() for name, entry in listing.tensors.items()}, want)


def check_oracle(tool, folder):
    """The library's own converter gives the same; it leaves "model." and its like out."""
    oracle = load_file(folder / "oracle" / "model.safetensors")
    got = {name: entry.tensor() for name, entry in tool.dump(folder / "ckpt").tensors.items()}
    got |= {name.removeprefix("model."): tensor for name, tensor in got.items()}
    return difference(got, oracle)


def check_convert(reshard, folder, want):
    made = folder / "hf"
    reshard.convert(folder / "ckpt", made, "--to", "safetensors", "--shard-size", "20K")
    got = {}
    for file in sorted(made.glob("*.safetensors")):
        got |= load_file(file)
    return difference(got, want)


def check_from_pretrained(folder, want):
    """The converted folder, with the configuration beside it."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if not (folder / "hf" / "config.json").exists():
        (folder / "hf" / "config.json").write_bytes((folder / "ckpt" / "config.json").read_bytes())
    model, about = AutoModelForCausalLM.from_pretrained(folder / "hf", output_loading_info=True, dtype="auto")
    if any(about[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        return f"from_pretrained: {about}"
    return difference(model.state_dict(), want)


def run(report, tool, reshard, case, folder):
    code, why = write(case, folder)
    if code == jobs.SKIP:
        return report.skip(case, why)
    if code:
        return report.check(f"{case}: is written", why)
    want = load_file(folder / "want.safetensors")
    report.run(f"{case}: {len(want)} tensors are read bit for bit", check_read, tool, folder, want)
    if (folder / "oracle").exists():
        report.run(f"{case}: as the library's own converter has it", check_oracle, tool, folder)
    report.run(f"{case}: safetensors loads what is made of it", check_convert, reshard, folder, want)
    if (folder / "ckpt" / "config.json").exists():
        report.run(f"{case}: from_pretrained loads what is made of it", check_from_pretrained, folder, want)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tool", required=True, help="the program ckpt_copy")
    options.add_argument("--reshard", required=True, help="the command-line tool")
    options.add_argument("--keep", help="a folder to leave all checkpoints in")
    options.add_argument("cases", nargs="*", metavar="CASE", help="all of them by default")
    args = options.parse_args()
    report, tool, reshard = Report(), Tool(args.tool), Reshard(args.reshard)
    with tempfile.TemporaryDirectory() as temporary:
        for case in args.cases or jobs.CASES:
            folder = pathlib.Path(args.keep or temporary) / case
            folder.mkdir(parents=True)
            run(report, tool, reshard, case, folder)
    print(f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Tests against PyTorch, both ways: PYTHON tests/interop/run.py --tool PATH_TO_ckpt_copy --reshard
PATH_TO_reshard

torch writes and we read (read_checks.py); we convert what torch wrote and torch reads
(copy_checks.py), also after two conversions by the tool (round_checks.py). The recipes that ship are compared with
their arithmetic in torch (recipe_checks.py, sharded_checks.py). Four ranks run beside this process (ranks.py).
"""

import argparse
import pathlib
import sys
import tempfile
import warnings

import torch.multiprocessing

import copy_checks
import ranks
import read_checks
import recipe_checks
import round_checks
import sharded_checks
from report import Report
from tool import Reshard, Tool


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tool", required=True, help="the program ckpt_copy")
    options.add_argument("--reshard", required=True, help="the command-line tool")
    options.add_argument("--keep", help="a folder to leave all checkpoints in")
    args = options.parse_args()
    warnings.filterwarnings("ignore")
    report, tool, reshard = Report(), Tool(args.tool), Reshard(args.reshard)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.keep or temporary)
        folder.mkdir(exist_ok=True)
        run(report, tool, reshard, folder)
    return report.end()


def run(report, tool, reshard, folder):
    context = torch.multiprocessing.get_context("spawn")
    written, copied = context.Event(), context.Event()
    job = torch.multiprocessing.start_processes(
        ranks.worker, args=(str(folder), written, copied), nprocs=ranks.WORLD, join=False
    )
    loads = []
    try:
        read_checks.single(report, tool, folder)
        while not written.wait(1):
            if job.join(0):
                raise RuntimeError("the ranks ended before they had written")
        read_checks.sharded(report, tool, folder)
        loads = copy_checks.copies(report, tool, folder)
        copied.set()
        round_checks.rounds(report, reshard, folder)
        recipe_checks.recipes(report, reshard, folder)
        sharded_checks.sharded_states(report, reshard, folder)
        while not job.join(1):
            pass
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # also what a rank raised
        report.check("the tests run to their end", " ".join(str(e).split())[-600:])
    finally:
        for process in job.processes:
            process.terminate()
    copy_checks.loaded(report, folder, loads)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""PyTorch's side of the conversion benchmark.

torch_convert.py SOURCE reads lines "convert PATH" from stdin, makes a torch.save file at PATH of the DCP checkpoint
SOURCE and answers each with one line, the seconds that it took, or "error: ...".
"""

import sys
import time
import warnings

from torch.distributed.checkpoint.format_utils import dcp_to_torch_save


def main():
    warnings.filterwarnings("ignore")
    for line in sys.stdin:
        path = line.rstrip("\n").split(" ", 1)[1]
        try:
            start = time.monotonic()
            dcp_to_torch_save(sys.argv[1], path)
            print(time.monotonic() - start, flush=True)
        except Exception as e:  # the harness prints it
            print("error:", " ".join(str(e).split()), flush=True)


main()

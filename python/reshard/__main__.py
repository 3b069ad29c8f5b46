# SPDX-License-Identifier: Apache-2.0
"""The command: hands over to the tool that lies beside this file."""

import os
import sys


def main():
    tool = os.path.join(os.path.dirname(__file__), "bin", "reshard")
    os.execv(tool, ["reshard", *sys.argv[1:]])


if __name__ == "__main__":
    main()

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files that scripts make from others: the broken checkpoints, the tables of docs/compatibility.md, the chart of the benchmarks.
. "$(dirname "$0")/../cli/expect.sh"

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    skip 'broken checkpoints are what make_bad.py writes' 'no python3 of 3.9 or later'
    skip 'tables of versions are what make_compatibility.py writes' 'no python3 of 3.9 or later'
    skip 'the chart shows the figures of docs/benchmarks.md' 'no python3 of 3.9 or later'
    finish
fi
export PYTHONDONTWRITEBYTECODE=1
t 'broken checkpoints are what make_bad.py writes' -c 'python3 make_bad.py --check >/dev/null'
t 'tables of versions are what make_compatibility.py writes' -c 'python3 make_compatibility.py --check'
t 'the chart shows the figures of docs/benchmarks.md' -c '../../tools/bench-chart ../../docs/benchmarks.md | cmp - ../../docs/benchmarks.svg'
finish

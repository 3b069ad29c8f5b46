#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/run-tests and tools/run-mpi-tests on a build of made-up programs, with an mpirun that warns on stderr as Open MPI 5 does.
. "$(dirname "$0")/../cli/expect.sh"

mkdir -p "$T/tools" "$T/tests/data" "$T/tests/hosts" "$T/build/tests" "$T/bin"
cp ../../tools/run-tests ../../tools/run-mpi-tests ../../tools/mpi-jobs "$T/tools"
program() # FILE COMMANDS
{
    printf '#!/bin/sh\n%s\n' "$2" >"$T/$1"
    chmod +x "$T/$1"
}
program bin/mpirun.openmpi 'echo "a warning of mpirun" >&2
while [ "$1" != -n ]; do shift; done
shift 2
"$@"'
program tests/hosts/run 'echo "0 passed, 0 failed, 0 skipped"'
program build/reshard 'echo a table'
for job in mpi_comm_openmpi mpi_launched mpi_cases mpi_stash mpi_live_openmpi mpi_random mpi_async; do
    program build/tests/$job 'echo "[  PASSED  ] 2 test(s)."'
done
program build/tests/mpi_live_fault 'exit 7'
program build/tests/mpi_fault 'exit 7'
program build/tests/test_some 'echo "[  PASSED  ] 40 test(s)."
echo "[  SKIPPED ] 3 test(s), listed below:"'
PATH=$T/bin:$PATH
program build/tests/test_newer 'echo "[  PASSED  ] tests: 10 test(s)."
echo "[  SKIPPED ] tests: 1 test(s), listed below:"
echo "[  FAILED  ] tests: 2 test(s), listed below:"
exit 2'

t 'warnings of mpirun are not compared' -c '"$T/tools/run-mpi-tests" "$T/build" 2 >"$T/mpi"; grep "inspect\|comm\|mpich" "$T/mpi"'
out <<'END'
== openmpi, 2 ranks: mpi_comm_openmpi: [  PASSED  ] 2 test(s).
== openmpi, 3 ranks: reshard inspect: [  PASSED  ] 1 test(s).
== mpich: [  SKIPPED ] not built
END

t 'jobs that fail under mpirun are counted, and the other tests still run' -c '
    "$T/tools/run-tests" "$T/build" >"$T/all"
    echo "code $?"
    "$T/tools/run-mpi-tests" "$T/build" >"$T/mpi"
    tail -q -n 1 "$T/all" "$T/mpi" | awk "
        NR == 1 { all = \$1; bad = \$3; left = \$5 }
        NR == 2 { print all - \$1, bad - \$3, left - \$5, (bad > 0) }"'
out <<'END'
code 1
50 2 4 1
END

t 'what failed is named once more above the last line' -c '
    tail -n 4 "$T/all" | head -n 3 | sed "s|$T|T|"
    grep -c "mpi_live_fault [a-z]*: .  FAILED" "$T/all"'
out <<'END'
test_newer, exit code 2:
[  FAILED  ] tests: 2 test(s), listed below:
again: tools/run-tests T/build 'newer'
4
END

t 'a runner of MPI jobs that dies is a failure' -c '
    echo "exit 3" >"$T/tools/run-mpi-tests"
    "$T/tools/run-tests" "$T/build" | tail -n 1'
out <<'END'
50 passed, 3 failed, 4 skipped
END

finish

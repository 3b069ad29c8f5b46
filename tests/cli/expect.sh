# SPDX-License-Identifier: Apache-2.0
# What the tests of the tool share. Each test_*.sh starts with `. "$(dirname "$0")/expect.sh"` and ends with `finish`;
# a test is
#
#     t 'what it shows' inspect golden/dcp_rows      (or: t 'what it shows' -c 'shell commands with $R')
#     out <<'END'                                    what it prints; nothing if not given
#     err <<'END'                                    the same for stderr
#     code 2                                         what it ends with; 0 if not given
#
# `t_terminal` is the same for a test that needs a terminal (`script`); it is skipped where none can be opened. Whatever else this
# machine can't run is left out with `skip 'what it shows' 'the reason'`.
# It runs in tests/data, so that names of files are short. $R is the tool, $T an empty folder.
# Prints what cmocka would, so that tools/run-tests can add it up.
R=$(realpath "${RESHARD:-build/reshard}")
T=$(mktemp -d)
export R T
export LC_ALL=C.UTF-8
unset NO_COLOR
cd "$(dirname "$0")/../data" || exit 1
trap 'rm -rf "$T" "$W"' EXIT
W=$(mktemp -d) # for the tests themselves
ran=0 bad=0 left=0 name=

# A file of safetensors: st FILE HEADER DATA; the data may have escapes as printf knows them.
st()
{
    printf "\\$(printf %o $((${#2} % 256)))\\$(printf %o $((${#2} / 256)))\0\0\0\0\0\0%s$3" "$2" >"$1"
}

t()
{
    check
    name=$1
    shift
    echo "[ RUN      ] $name"
    if [ "$1" = -c ]; then
        sh -c "$2" >"$W/out" 2>"$W/err" </dev/null
    else
        "$R" "$@" >"$W/out" 2>"$W/err" </dev/null
    fi
    echo $? >"$W/code"
    : >"$W/out.want"
    : >"$W/err.want"
    echo 0 >"$W/code.want"
}

out()
{
    cat >"$W/out.want"
}

err()
{
    cat >"$W/err.want"
}

code()
{
    echo "$1" >"$W/code.want"
}

# Compares what the last test gave with what it should.
check()
{
    [ -n "$name" ] || return
    ran=$((ran + 1))
    wrong=
    for what in out err code; do
        diff -u --label "wanted $what" --label "got $what" "$W/$what.want" "$W/$what" || wrong=1
    done
    if [ -n "$wrong" ]; then
        bad=$((bad + 1))
        echo "$name" >>"$W/failed"
        echo "[  FAILED  ] $name"
    else
        echo "[       OK ] $name"
    fi
}

skip()
{
    check
    name=
    left=$((left + 1))
    echo "[ RUN      ] $1"
    echo "$2"
    echo "[  SKIPPED ] $1"
    echo "$1: $2" >>"$W/skipped"
}

# A container without /dev/pts has no terminals.
t_terminal()
{
    if script -qec true /dev/null >/dev/null 2>&1; then
        t "$@"
    else
        skip "$1" 'no terminal can be opened here'
    fi
}

finish()
{
    check
    echo "[==========] $ran test(s) run."
    echo "[  PASSED  ] $((ran - bad)) test(s)."
    if [ "$left" != 0 ]; then
        echo "[  SKIPPED ] $left test(s), listed below:"
        sed 's/^/[  SKIPPED ] /' "$W/skipped"
    fi
    [ "$bad" = 0 ] && exit 0
    echo "[  FAILED  ] $bad test(s), listed below:"
    sed 's/^/[  FAILED  ] /' "$W/failed"
    exit 1
}

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/check-format with two versions of clang-format, which are made up.
. "$(dirname "$0")/../cli/expect.sh"

mkdir -p "$T/tools" "$T/bin"
cp ../../tools/check-format "$T/tools"
: >"$T/a.c"
program() # FILE COMMANDS
{
    printf '#!/bin/sh\n%s\n' "$2" >"$T/$1"
    chmod +x "$T/$1"
}
program tools/exports :
program bin/git 'case $1 in ls-files) echo a.c ;; *) echo "git $*" ;; esac'
program bin/clang-format 'case $1 in --version) echo "Debian clang-format version $V.1.0" ;; *) echo "clang-format $*" ;; esac'
PATH=$T/bin:$PATH
cd "$T" || exit 1

t 'the version that decides checks and lays out every file' -c 'V=14 tools/check-format && V=14 tools/check-format --fix'
out <<'END'
clang-format --dry-run --Werror a.c
clang-format -i a.c
END

t 'another version checks no layout and lays out only lines that changed' -c 'V=19 tools/check-format && V=19 tools/check-format --fix'
out <<'END'
check-format: layout not checked: this is clang-format 19, and 14 decides; CI has that
git clang-format --force --quiet --extensions c,h HEAD
END

finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a build installs for CMake, used by the program that the documents show.
. "$(dirname "$0")/../cli/expect.sh"
build=$(dirname "$R")
top=$PWD/../..
mkdir -p "$T/prefix/lib/cmake/reshard" "$T/prefix/include" "$T/src"
cp -r "$top/include/reshard" "$T/prefix/include"
cp -P "$build"/libreshard*.so "$build"/libreshard*.so.1 "$build"/libreshard*.so.1.0.0 "$T/prefix/lib"
cp "$build"/reshardConfig*.cmake "$T/prefix/lib/cmake/reshard"
block() # FIRST LINE: a block of the documents
{
    cat "$top/README.md" "$top"/docs/*.md | awk -v first="$1" '/^```$/ { p = 0 } index($0, first) == 1 { p = 1 } p'
}
block '/* train.c' >"$T/src/train.c"
block '# CMakeLists.txt' >"$T/src/CMakeLists.txt"
unset CFLAGS LDFLAGS CC
grep -q __asan_init "$build/libreshard.so" && export CFLAGS='-fsanitize=address,undefined' ASAN_OPTIONS=detect_leaks=0
export CMAKE_PREFIX_PATH="$T/prefix"
cd "$T" || exit 1

if ! cmake --version >/dev/null 2>&1; then
    skip 'find_package(reshard) builds the program of the documents' 'there is no CMake here'
    skip 'a version that is not compatible is refused' 'there is no CMake here'
    finish
fi

t 'find_package(reshard) builds the program of the documents' -c '
    { cmake -S src -B made && cmake --build made; } >log 2>&1 || { cat log; exit; }
    made/train'
out <<'END'
saved from 4 ranks, loaded on 2
END

t 'a version that is not compatible is refused' -c '
    sed -i "s/find_package(reshard/& \$ENV{WANTED}/" src/CMakeLists.txt
    version=$($R --version | sed "s/reshard //")
    for wanted in "$version" "${version%.*}" 0.0 "${version%.*}.99" 77 ; do
        WANTED=$wanted cmake -S src -B "made-$wanted" >/dev/null 2>&1 && echo "yes" || echo "no"
    done'
out <<'END'
yes
yes
no
no
no
END

finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Converts a sparse safetensors file of $GIB GiB (64) to null: with at most 256 MiB of address space, and shows the
# peak of resident memory: bench/convert_sparse.sh PATH_TO_reshard [FOLDER]
set -eu
tool=$1
folder=${2:-${TMPDIR:-/tmp}}
gib=${GIB:-64}
file=$folder/reshard-sparse.$$.safetensors
recipe=$file.recipe
trap 'rm -f "$file" "$recipe"' EXIT INT TERM

# One bfloat16 tensor for each GiB.
header='{'
i=0
while [ "$i" -lt "$gib" ]; do
    from=$((i * 1073741824))
    header="$header\"t$i\":{\"dtype\":\"BF16\",\"shape\":[16384,32768],\"data_offsets\":[$from,$((from + 1073741824))]},"
    i=$((i + 1))
done
header="${header%,}}"
while [ $(((${#header} + 8) % 64)) -ne 0 ]; do header="$header "; done
len=${#header}
b=0
while [ "$b" -lt 8 ]; do
    printf "\\$(printf %03o $(((len >> (8 * b)) & 255)))"
    b=$((b + 1))
done >"$file"
printf %s "$header" >>"$file"
truncate -s $((8 + len + gib * 1073741824)) "$file"

# Address space, not only resident memory, so that nothing can hide; thread stacks count too.
(
    ulimit -v 262144
    exec "$tool" convert "$file" null: --to dcp --no-progress
)
echo "converted $gib GiB in 256 MiB of address space"

# The same through a recipe that permutes rows and stacks tensors.
printf 't{i}[(n j 2) h] -> t[i (n 2 j) h] where n = 128\n' >"$recipe"
(
    ulimit -v 262144
    exec "$tool" convert "$file" null: --to dcp --no-progress --recipe "$recipe"
)
echo "converted $gib GiB with a recipe in 256 MiB of address space"

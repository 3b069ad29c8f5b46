#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every command that reads a checkpoint sees one, whole, while another process overwrites it all the time.
. "$(dirname "$0")/../cli/expect.sh"
[ -w /dev/shm ] && S=$(mktemp -d /dev/shm/reshard-seam.XXXXXX) || S=$T/work # where publishing is fast
mkdir -p "$S"
export S
trap 'touch "$S/stop"; wait; rm -rf "$T" "$W" "$S"' EXIT

# Two checkpoints with the same names and shapes, in four files each.
st "$S/a.safetensors" '{"w":{"dtype":"I32","shape":[4],"data_offsets":[0,16]}}' '\001\0\0\0\001\0\0\0\001\0\0\0\001\0\0\0'
st "$S/b.safetensors" '{"w":{"dtype":"I32","shape":[4],"data_offsets":[0,16]}}' '\002\0\0\0\002\0\0\0\002\0\0\0\002\0\0\0'
for x in a b; do
    "$R" convert -q "$S/$x.safetensors" "$S/$x" --layout 'mesh n=4; * shard(0)@n'
    "$R" convert -q "$S/$x.safetensors" "$S/$x.pt"
done
cp -r "$S/a" "$S/ck"
cp "$S/a.pt" "$S/one.pt"
cp "$S/a.pt.reshard-sums" "$S/one.pt.reshard-sums"
: >"$S/count"

# shellcheck disable=SC2016 # for the shell of the writer
sh -c 'while ! [ -e "$S/stop" ]; do
    for x in b a; do
        "$R" convert -q --no-sync --overwrite "$S/$x" "$S/ck" --layout "mesh n=4; * shard(0)@n" &&
            "$R" convert -q --no-sync --overwrite "$S/$x.pt" "$S/one.pt" || exit 1
        echo >>"$S/count"
    done
done' 2>"$S/writer" &

# Runs a command until the writer has published ten times more; prints what it should not print.
cat >"$S/often" <<'END'
end=$(($(wc -l <"$S/count") + 10))
while [ "$(wc -l <"$S/count")" -lt $end ] && ! [ -s "$S/writer" ]; do
    sh -c "$1" 2>&1 || echo "ended with $?"
done | sort -u | grep -vxE "$2"
true
END
ones_or_twos='1 1 1 1|2 2 2 2'
export ones_or_twos

# shellcheck disable=SC2016 # for other shells
for at in ck one.pt; do
    P=$S/$at
    export P
    t "cat: $at" -c 'sh "$S/often" "\"\$R\" cat --format text \"\$P\" w" "$ones_or_twos"'
    t "verify: $at" -c 'sh "$S/often" "\"\$R\" verify -q \"\$P\"" x'
    t "inspect: $at" -c 'sh "$S/often" "\"\$R\" inspect \"\$P\" | grep -c int32" 1'
    t "diff: $at" -c 'sh "$S/often" "\"\$R\" diff -q \"\$P\" \"\$S/a\" >/dev/null || [ \$? = 1 ]" x'
    t "convert: $at" -c 'sh "$S/often" "\"\$R\" convert -q --no-sync --overwrite \"\$P\" \"\$S/copy.safetensors\" &&
        \"\$R\" cat --format text \"\$S/copy.safetensors\" w" "$ones_or_twos"'
done

t 'the writer never failed' -c 'cat "$S/writer"; test "$(wc -l <"$S/count")" -ge 100'
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tables and plans fit a terminal of 60 columns: what can be spared is left out and named.
. "$(dirname "$0")/../cli/expect.sh"

cat >"$W/narrow" <<'END'
script -qec "stty cols 60; NO_COLOR=1 $*" /dev/null | tr -d '\r'
END
chmod +x "$W/narrow"
N=$W/narrow
export N
st "$T/long" '{"model.layers.10.self_attn.q_proj.weight":{"dtype":"U8","shape":[4,8],"data_offsets":[0,32]},"norm":{"dtype":"U8","shape":[4],"data_offsets":[32,36]}}' "$(printf '%036d' 0)"
"$R" convert -q "$T/long" "$T/ranks" --layout 'mesh a=2 b=2; norm replicate; * shard(0)@a shard(1)@b'

t_terminal 'a table leaves out columns and puts long names on lines of their own' -c 'cd "$T" && sh "$N" "$R" inspect ranks'
out <<'END'
name                                    dtype  shape   bytes
model.layers.10.self_attn.q_proj.weight
                                        uint8  [4, 8]   32 B
norm                                    uint8  [4]       4 B
no room for: layout, chunks, file

dcp: 2 tensors in 5 chunks, 36 parameters, 36 B; 0 objects
END

t_terminal 'a plan and what is below it' -c 'cd "$T" && sh "$N" "$R" plan ranks --layout \"mesh a=2\; \* replicate\"'
out <<'END'
rank  needs  reads  pieces  files  keeps  sends  receives
   0   36 B   36 B       5      4    8 B    8 B      28 B
   1   36 B   36 B       5      4   12 B   12 B      24 B
   2    0 B    0 B       0      0    0 B   16 B       0 B
   3    0 B    0 B       0      0    0 B   16 B       0 B
 all   72 B   72 B      10      4   20 B   52 B      52 B

needs: memory of the rank; reads: bytes from files, in so
many pieces
keeps, sends, receives: if the ranks that wrote the files
still held them
END

t_terminal 'no line is longer than the terminal' -c 'cd "$T" && for c in "inspect ranks" "inspect --tree ranks" "inspect --stats ranks" "inspect long"; do sh "$N" "$R" $c; done | awk "length > 60"'

finish

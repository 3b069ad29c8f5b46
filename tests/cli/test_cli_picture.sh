#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard inspect --picture
. "$(dirname "$0")/expect.sh"

t 'each rank has a letter, and the legend says what it wrote' inspect golden/dcp_blocks --picture blocks
out <<'END'
blocks  float32 [8, 6], 4 chunks

    0 0 0 1 1 1
    0 0 0 1 1 1
    0 0 0 1 1 1
    0 0 0 1 1 1
    2 2 2 3 3 3
    2 2 2 3 3 3
    2 2 2 3 3 3
    2 2 2 3 3 3

    axis 0 goes down, axis 1 across
    0 rank 0     __0_0.distcp  [0:4, 0:3]  48 B
    1 rank 1     __1_0.distcp  [0:4, 3:6]  48 B
    2 rank 2     __2_0.distcp  [4:8, 0:3]  48 B
    3 rank 3     __3_0.distcp  [4:8, 3:6]  48 B
END

t 'files that tell no rank are numbered by name; the axes that are not drawn are listed' inspect golden/hf_parts --picture middle
out <<'END'
middle  float64 [3, 6, 5], 4 chunks

    0 0 0 0 0
    0 0 0 0 0
    1 1 1 1 1
    1 1 1 1 1
    2 2 2 2 2
    2 2 2 2 2

    axis 1 goes down, axis 2 across
    axis 0, size 3: drawn at index 0, not cut
    0 shard-00001-model-00001-of-00001.safetensors  [0:3, 0:2, 0:5]  240 B
    1 shard-00002-model-00001-of-00001.safetensors  [0:3, 2:4, 0:5]  240 B
    2 shard-00003-model-00001-of-00001.safetensors  [0:3, 4:6, 0:5]  240 B
    3 shard-00004-model-00001-of-00001.safetensors  [0:3, 6:6, 0:5]  0 B
END

t 'other axes can be drawn' inspect golden/hf_parts --picture middle --axes 0,2
out <<'END'
middle  float64 [3, 6, 5], 4 chunks

    0 0 0 0 0
    0 0 0 0 0
    0 0 0 0 0

    axis 0 goes down, axis 2 across
    axis 1, size 6: drawn at index 0, cut into 3 parts
    0 shard-00001-model-00001-of-00001.safetensors  [0:3, 0:2, 0:5]  240 B
    1 shard-00002-model-00001-of-00001.safetensors  [0:3, 2:4, 0:5]  240 B
    2 shard-00003-model-00001-of-00001.safetensors  [0:3, 4:6, 0:5]  240 B
    3 shard-00004-model-00001-of-00001.safetensors  [0:3, 6:6, 0:5]  0 B
END

t 'a pattern draws each tensor it matches' -c '"$R" inspect golden/dcp_blocks --picture "*ed" | grep chunks'
out <<'END'
nested  float32 [10, 3], 4 chunks
strided  bfloat16 [8, 3], 4 chunks
END

st "$T/large.safetensors" '{"w":{"dtype":"U8","shape":[64,100],"data_offsets":[0,6400]}}' "$(printf '%06400d' 0)"

t 'a large tensor is drawn as wide as there is room' -c '"$R" inspect "$T/large.safetensors" --picture w | sed -n "3p;20,\$p"'
out <<'END'
    0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
    one character is about 4 x 3 elements
    axis 0 goes down, axis 1 across
    0 large.safetensors  [0:64, 0:100]  6.2 KiB
END

t 'more ranks than letters are drawn as numbers' -c '"$R" convert -q "$T/large.safetensors" "$T/many" --layout "mesh dp=64; * shard(0)@dp" &&
    "$R" inspect "$T/many" --picture w | sed -n "12,13p;66,70p;\$p"'
out <<'END'
     9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9  9
    10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10
    63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63 63

    one character is about 1 x 4 elements
    axis 0 goes down, axis 1 across
     0 rank 0     __0_0.distcp  [0:1, 0:100]  100 B
    ... and 40 more ranks
END

t 'more parts of one axis than rows are drawn one behind the other' -c '"$R" convert -q "$T/large.safetensors" "$T/row" --layout "mesh dp=100; * shard(1)@dp" &&
    "$R" inspect "$T/row" --picture w | sed "8,\$d"'
out <<'END'
w  uint8 [64, 100], 100 chunks

     0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24
    25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49
    50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74
    75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99

END

t 'chunks that find no room are counted' -c '"$R" convert -q "$T/large.safetensors" "$T/grid" --layout "mesh a=32 b=50; * shard(0)@a shard(1)@b" &&
    "$R" inspect "$T/grid" --picture w | grep "too small"'
out <<'END'
    1120 of 1600 chunks are too small to draw; --html shows all
END

t 'a scalar is one character' -c '"$R" inspect golden/dcp_scalars --picture "scalar.b*" | sed -n 1,5p'
out <<'END'
scalar.bfloat16  bfloat16 [], 1 chunk

    0

    0 rank 0     __0_0.distcp  []  2 B
END

t 'a name that is not there is the answer no' inspect golden/dcp_blocks --picture none
err <<'END'
reshard: no tensor in "golden/dcp_blocks" is called "none"
END
code 1

t 'axes that the tensor has not are misuse' inspect golden/dcp_blocks --picture blocks --axes 0,2
err <<'END'
reshard: "blocks" has 2 axes, not those of "0,2"
try: reshard help inspect
END
code 2

t 'axes that make no sense are misuse' inspect golden/dcp_blocks --picture blocks --axes 1
err <<'END'
reshard: --axes takes two different axes, such as 0,1; not "1"
try: reshard help inspect
END
code 2

t 'a picture is no JSON' inspect golden/dcp_blocks --picture blocks --json
err <<'END'
reshard: --json and --picture can't be combined
try: reshard help inspect
END
code 2

t_terminal 'on a terminal there are colours, unless NO_COLOR is set' -c '
    script -qec "$R inspect golden/dcp_blocks --picture blocks" /dev/null | grep -c "$(printf "\033\\[48")"
    NO_COLOR=1 script -qec "$R inspect golden/dcp_blocks --picture blocks" /dev/null | grep -c "$(printf "\033\\[48")"'
out <<'END'
12
0
END
code 1

finish

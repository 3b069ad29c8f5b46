#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# inspect --stats, its --sort, and the order of layers.
. "$(dirname "$0")/../cli/expect.sh"

# 1, -2, NaN, Inf, 3 and their kin; integers that no double holds; 3+4j; 448 and NaN.
st "$T/kinds" '{"f32":{"dtype":"F32","shape":[5],"data_offsets":[0,20]},"bf16":{"dtype":"BF16","shape":[2],"data_offsets":[20,24]},"f16":{"dtype":"F16","shape":[3],"data_offsets":[24,30]},"i64":{"dtype":"I64","shape":[2],"data_offsets":[30,46]},"u64":{"dtype":"U64","shape":[1],"data_offsets":[46,54]},"c64":{"dtype":"C64","shape":[1],"data_offsets":[54,62]},"f8":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[62,64]},"i8":{"dtype":"I8","shape":[2],"data_offsets":[64,66]},"bool":{"dtype":"BOOL","shape":[2],"data_offsets":[66,68]},"none":{"dtype":"F32","shape":[0],"data_offsets":[68,68]},"nan":{"dtype":"F32","shape":[1],"data_offsets":[68,72]},"f64":{"dtype":"F64","shape":[2],"data_offsets":[72,88]}}' \
    '\0\0\200\077\0\0\0\300\0\0\300\177\0\0\200\377\0\0\100\100\200\077\0\300\0\074\0\174\0\300\001\0\0\0\0\0\040\0\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\0\0\100\100\0\0\200\100\176\177\377\001\0\001\0\0\300\177\240\310\353\205\363\314\341\177\240\310\353\205\363\314\341\377'

t 'elements that are not finite are counted and left out of the rest' inspect --stats "$T/kinds"
out <<'END'
name  dtype          shape                   min                   max        mean         norm  nan  inf
bf16  bfloat16       [2]                      -2                     1        -0.5       2.2361    0    0
bool  bool           [2]                       0                     1         0.5            1    0    0
c64   complex64      [1]                       5                     5           5            5    0    0
f8    float8_e4m3fn  [2]                     448                   448         448          448    1    0
f16   float16        [3]                      -2                     1        -0.5       2.2361    0    1
f32   float32        [5]                      -2                     3     0.66667       3.7417    1    1
f64   float64        [2]                 -1e+308                1e+308           0  1.4142e+308    0    0
i8    int8           [2]                      -1                     1           0       1.4142    0    0
i64   int64          [2]                      -1      9007199254740993  4.5036e+15   9.0072e+15    0    0
nan   float32        [1]                       -                     -           -            -    1    0
none  float32        [0]                       -                     -           -            -    0    0
u64   uint64         [1]    18446744073709551615  18446744073709551615  1.8447e+19   1.8447e+19    0    0

safetensors: 12 tensors in 12 chunks, 23 parameters, 88 B; 0 objects
END

t 'JSON has them in full, and null where there is nothing' -c '"$R" inspect --json --stats "$T/kinds" f32 none i64 | grep -o "\"stats\": {[^}]*}"'
out <<'END'
"stats": {"min": -2, "max": 3, "mean": 0.66666666666666663, "norm": 3.7416573867739413, "nan": 1, "inf": 1}
"stats": {"min": -1, "max": 9007199254740993, "mean": 4503599627370495.5, "norm": 9007199254740992, "nan": 0, "inf": 0}
"stats": {"min": null, "max": null, "mean": null, "norm": null, "nan": 0, "inf": 0}
END

t 'a layout and a format do not change them' -c 'for c in dcp_blocks hf_parts; do "$R" inspect --stats golden/$c blocks strided | head -n 3; done'
out <<'END'
name     dtype     shape           min         max         mean        norm  nan  inf
blocks   float32   [8, 6]  -6.6327e+36  4.7893e+36  -1.9605e+35  9.9689e+36    0    0
strided  bfloat16  [8, 3]  -7.8594e+32  3.0697e+19  -3.2748e+31  7.8594e+32    0    0
name     dtype     shape           min         max         mean        norm  nan  inf
blocks   float32   [8, 6]  -6.6327e+36  4.7893e+36  -1.9605e+35  9.9689e+36    0    0
strided  bfloat16  [8, 3]  -7.8594e+32  3.0697e+19  -3.2748e+31  7.8594e+32    0    0
END

# Zeros, but every MiB starts with 1e300, 1, -1e300 or 3: what is added up in another order gives another sum.
st "$T/large" '{"w":{"dtype":"F64","shape":[24,131072],"data_offsets":[0,25165824]}}' ''
size=$(stat -c %s "$T/large")
truncate -s $((size + 25165824)) "$T/large"
for i in $(seq 0 23); do
    case $((i % 4)) in
    0) printf '\234\165\0\210\074\344\067\176' ;;
    1) printf '\0\0\0\0\0\0\360\077' ;;
    2) printf '\234\165\0\210\074\344\067\376' ;;
    3) printf '\0\0\0\0\0\0\010\100' ;;
    esac | dd of="$T/large" bs=1 seek=$((size + i * 1048576)) conv=notrunc 2>/dev/null
done

t 'the number of threads does not change them' -c 'for j in 1 2 5 16 16 16; do "$R" inspect --json --stats -j $j "$T/large" | grep -o "\"min.*inf\": [0-9]*"; done | sort | uniq -c'
out <<'END'
      6 "min": -1.0000000000000001e+300, "max": 1.0000000000000001e+300, "mean": 9.5367431640625e-07, "norm": 3.4641016151377547e+300, "nan": 0, "inf": 0
END

t 'compressed tensors have them too' -c '"$R" inspect --stats golden/dcp_zstd | head -n 3'
out <<'END'
name          dtype    shape                       min                  max          mean         norm  nan  inf
empty_shards  int64    [2, 3]     -4368548302003210424  9093408230650244226    1.6013e+18   1.3113e+19    0    0
middle        float64  [3, 6, 5]          -3.3567e+284          3.1052e+282  -3.7015e+282  3.3568e+284    0    0
END

t 'a picture has none' inspect --stats --picture blocks golden/dcp_blocks
code 2
err <<'END'
reshard: --picture and --stats can't be combined
try: reshard help inspect
END

st "$T/layers" '{"l.10.w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"l.9.w":{"dtype":"I8","shape":[1],"data_offsets":[1,2]},"l.2.experts10":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},"l.2.experts9":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},"l.2":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}' 1234
t 'layers and experts are listed by their numbers, or as --sort says' -c 'for s in name -name size -size dtype stored; do "$R" inspect "$T/layers" --sort $s | sed -n "2,/^$/s/ .*//p" | paste -sd" "; done
    "$R" inspect "$T/layers" | sed -n "2,/^$/s/ .*//p" | paste -sd" "; "$R" inspect --json "$T/layers" | grep -o "\"name\": \"[^\"]*" | cut -c 10- | paste -sd" "'
out <<'END'
l.2 l.2.experts9 l.2.experts10 l.9.w l.10.w
l.10.w l.9.w l.2.experts10 l.2.experts9 l.2
l.2 l.2.experts9 l.9.w l.10.w l.2.experts10
l.2.experts10 l.10.w l.9.w l.2.experts9 l.2
l.9.w l.2 l.2.experts9 l.2.experts10 l.10.w
l.10.w l.9.w l.2.experts10 l.2.experts9 l.2
l.2 l.2.experts9 l.2.experts10 l.9.w l.10.w
l.10.w l.9.w l.2.experts10 l.2.experts9 l.2
END

t 'of a folder the file of each tensor is told' -c 'mkdir "$T/two" && cp "$T/layers" "$T/two/b.safetensors" && cp "$T/kinds" "$T/two/a.safetensors" && "$R" inspect "$T/two" --sort file "l.9*" f32 bf16'
out <<'END'
name   dtype     shape  layout  chunks  bytes  file
bf16   bfloat16  [2]    whole        1    4 B  a.safetensors
f32    float32   [5]    whole        1   20 B  a.safetensors
l.9.w  int8      [1]    whole        1    1 B  b.safetensors

safetensors: 3 tensors in 3 chunks, 8 parameters, 25 B; 0 objects
END

finish

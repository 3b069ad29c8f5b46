#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard cat
. "$(dirname "$0")/expect.sh"

t 'text has a line for each row' cat golden/dcp_rows row --format text
out <<'END'
5.7169077e+13 0.008308365 -3.6166663e+33 5.739943e-29 -2.661415e-21 1.7496635e+10
-3.828394e-21 -5.11738e-39 -5.9665995e+17 -0.10773823 1.3889131e+23 -6383191
-217.55731 3.1342076e-09 -5.360887e+13 -3.070821e+16 2.9643858e+23 2.887138e+10
-3.1210984e+28 5.0036956e+26 6.3063495e-22 3.044186e-20 1.4718477e-38 -9.445527e-07
-0.031031279 6.262898e+19 -1.902807e-26 -8.579709e-34 4.4943443e-10 4330.2896
-1.3431452e-07 -2.2719154e+18 7.8303375e+09 -8.4829785e-31 -9.223819e-37 -1.6175676e+38
2.7059338e-14 2.7246185e+09 -5.285065e+07 -1.4127199e+37 2.7739896e+26 -5.1145677e-37
-1.9124559e+34 6.5457457e-28 1.959914e-37 2.1653024e+33 -1.7625768e-09 -3.895256e+18
END

t 'text has an empty line between matrices' cat golden/hf_parts middle --slice :2,:2,:3 --format text
out <<'END'
-1.1086487452619441e-209 2.3097203707807485e-88 5.568604501443729e-117
1.5384043250936516e+120 -1.0496001137736198e+112 2.87345940607313e+214

-6.925231506164347e+61 -6.2410381315382415e-105 -1.2484903798831224e-23
-1.0968933684266419e+59 -222754628.14006817 -2.5921653164051976e-166
END

t 'raw is little-endian and row-major' -c '"$R" cat golden/dcp_empty_shards empty_shards | od -An -tx1 -w8'
out <<'END'
 b1 92 c7 bc ac 78 15 64
 48 77 f6 02 77 cc 5f c3
 1e e8 a9 ab 17 4b 91 21
 f1 d2 13 4e 88 1c 0c d5
 82 6c 85 59 9b 46 32 7e
 07 24 d5 58 88 53 11 e9
END

t 'raw is what is printed to a pipe if nothing is said' -c '"$R" cat golden/dcp_blocks blocks >"$T/a"; "$R" cat golden/dcp_blocks blocks --format raw | cmp - "$T/a"'

t 'the same tensor has the same bytes in another format and layout' -c '"$R" cat golden/dcp_blocks blocks >"$T/a"; "$R" cat golden/hf_parts blocks | cmp - "$T/a"'

t 'a slice takes rows and columns' cat golden/dcp_blocks blocks --slice 1:3,2:4 --format text
out <<'END'
-1.9050073e-25 -4.4774887e+25
-699862.8 0.5068481
END

t 'an index takes one row' cat golden/dcp_blocks blocks --slice 7 --format text
out <<'END'
-6.4213603e-09 -6.632719e+36 1.8781999e-37 4.7892847e+36 1.9317039e+34 -1.4745508e+27
END

t 'negative numbers count from the end' cat golden/dcp_blocks blocks --slice -1,-2: --format text
out <<'END'
1.9317039e+34 -1.4745508e+27
END

t 'a slice beyond the end is cut' cat golden/dcp_blocks blocks --slice 7:100,5:100 --format text
out <<'END'
-1.4745508e+27
END

t 'a slice may be empty' cat golden/dcp_blocks blocks --slice 5:2 --format text

t 'an index beyond the end is misuse' cat golden/dcp_blocks blocks --slice 8
code 2
err <<'END'
reshard: --slice "8" does not fit dimension 0 of the shape [8, 6]
try: reshard help cat
END

t 'a slice of too many dimensions is misuse' cat golden/dcp_blocks blocks --slice 0,0,0
code 2
err <<'END'
reshard: --slice "0,0,0" has more dimensions than the shape [8, 6]
try: reshard help cat
END

t 'a slice with a step is misuse' cat golden/dcp_blocks blocks --slice 0:4:2
code 2
err <<'END'
reshard: --slice "0:4:2" has a step, which is not supported
try: reshard help cat
END

t 'a slice of letters is misuse' cat golden/dcp_blocks blocks --slice a:b
code 2
err <<'END'
reshard: --slice "a:b" does not fit dimension 0 of the shape [8, 6]
try: reshard help cat
END

t 'a scalar is printed' cat golden/plain.safetensors scalar.int64 --format text
out <<'END'
-256263332895277039
END

t 'npy has a header that numpy reads' -c '"$R" cat golden/dcp_blocks blocks --slice :2,1 --format npy | head -c 128 | tr "\223\0\1" "__1" | sed "s/ *$//"'
out <<'END'
_NUMPY1_v_{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }
END

t 'npy says so many bytes for what numpy lacks' -c '"$R" cat golden/plain.safetensors t.bfloat16 --format npy | head -n 1 | tail -c +11 | sed "s/ *$//"'
out <<'END'
{'descr': '|V2', 'fortran_order': False, 'shape': (3, 5), }
END

t 'every dtype is printed' -c 'for t in bool uint8 int8 int16 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2; do echo $t $("$R" cat golden/plain.safetensors t.$t --slice 0 --format text); done'
out <<'END'
bool 0 1 0 1 0
uint8 94 208 21 2 84
int8 -122 -124 28 -13 4
int16 29005 26403 -20471 9022 -10365
uint32 2920746815 871386997 145595269 3207268563 49022987
int64 -2933459017510500932 1876180628758105348 -7666102627610576510 7113105349362475196 983543020859219336
uint64 15380142939283970489 5583555841482526304 4614246347034477333 2052478338622301862 11305183438223129690
float16 -0.00075912476 -0.99560547 -0.033233643 7.432699e-05 2592
bfloat16 1.4473274e-37 -1.3541695e-33 -9.164214e-07 2.3625546e-13 1.3271347e-08
float32 -1578023.1 1.9624483e-38 2.4585445e-10 2.548576e+13 -2.1542508e+09
float64 2.89288078826949e+243 3.238962580236814e+179 5.858351252061036e-81 2.150167168556783e+269 -2.4731973549706595e-247
complex64 -7.152483e+22+2683295.8j 2.954479e+34-40772984j 15711.111-1.4551637e+25j 2.234654e-14-1.4573125e+28j 100602.27+1.7813174e+16j
float8_e4m3fn 104 -0.0859375 0.017578125 0.9375 -56
float8_e5m2 -0.00010681152 0.4375 0.875 0.0390625 -320
float8_e4m3fnuz -0.625 -0.8125 1.125 0 -52
float8_e5m2fnuz 0.375 0.3125 -16384 0.0625 0.0068359375
float8_e8m0fnu 1.4551915e-11 1.0384594e+34 3.0948501e+26 0.00390625 5.293956e-23
float4_e2m1fn_x2 58 151 193 239 167
END

t 'JSON has name, dtype, shape and values' cat golden/dcp_blocks strided --slice 0 --json
out <<'END'
{
  "name": "strided",
  "dtype": "bfloat16",
  "shape": [3],
  "values": [
    -1.8098945e-10,
    1.2088854e-17,
    -1.8907913e+20
  ]
}
END

t 'an object is printed as Python does' cat golden/dcp_objects tuple
out <<'END'
(1, 'a', (2.5, None), ())
END

t 'an object as JSON' cat golden/dcp_objects set --json
out <<'END'
{"$set": [1, 2, 3]}
END

t 'an object has no slices' cat golden/dcp_objects set --slice 0
code 2
err <<'END'
reshard: "set" is an object, not a tensor: it has no slices and no npy form
try: reshard help cat
END

t 'a name that is nearly right is named' cat golden/dcp_blocks blokcs
code 1
err <<'END'
reshard: nothing in "golden/dcp_blocks" is called "blokcs"; the closest name is "blocks"
END

t 'a name that is not there ends in 1' cat golden/dcp_blocks missing
code 1
err <<'END'
reshard: nothing in "golden/dcp_blocks" is called "missing"
END

t 'JSON and a format exclude each other' cat golden/dcp_blocks blocks --json --format npy
code 2
err <<'END'
reshard: --json and --format can't be combined
try: reshard help cat
END

t 'a flipped bit is found while it is read' -c '"$R" cat bad/dcp/item_bit_flipped "$("$R" inspect bad/dcp/item_bit_flipped | sed -n "2s/ .*//p")"'
code 4
err <<'END'
reshard: tensor "w": file "__0_0.distcp": the data from byte 301 on have the CRC32 b5aee760, the file says 2e3fa576
END

t 'a name that others start with prints all that lies below it' cat golden/training.pt buffers
out <<'END'
buffers.0  int64 [3]
-4850004494195295950 -2444844111296111559 3438423945338391443

buffers.1.ema  float32 [2, 2]
-363.4606 3.683905e+07
-61545.977 -9452.692
END

t 'objects below a name are printed a line each, numbers by their value' cat golden/training.pt optim.param_groups
out <<'END'
optim.param_groups.0.betas: (0.9, 0.999)
optim.param_groups.0.eps: 1e-08
optim.param_groups.0.fused: None
optim.param_groups.0.lr: 0.001
optim.param_groups.0.params: [0]
END

t 'what lies below a name as JSON' cat golden/training.pt buffers --json
out <<'END'
{
  "buffers.0": {
    "name": "buffers.0",
    "dtype": "int64",
    "shape": [3],
    "values": [-4850004494195295950, -2444844111296111559, 3438423945338391443]
  },
  "buffers.1.ema": {
    "name": "buffers.1.ema",
    "dtype": "float32",
    "shape": [2, 2],
    "values": [-363.4606, 3.683905e+07, -61545.977, -9452.692]
  }
}
END

t 'what lies below a name has no slices and no bytes' -c '"$R" cat golden/training.pt optim --slice 0; "$R" cat golden/training.pt optim --format raw'
code 2
err <<'END'
reshard: 8 items lie below "optim": they can be printed only as text or JSON
try: reshard help cat
reshard: 8 items lie below "optim": they can be printed only as text or JSON
try: reshard help cat
END

st "$T/long" '{"w":{"dtype":"U8","shape":[7,1,160],"data_offsets":[0,1120]},"m":{"dtype":"U8","shape":[1001,1],"data_offsets":[3121,4122]},"v":{"dtype":"U8","shape":[1000],"data_offsets":[1120,2120]},"x":{"dtype":"U8","shape":[1001],"data_offsets":[2120,3121]}}' "$(seq 1 4000 | tr -d '\n' | head -c 4122)"

t_terminal 'on a terminal a large tensor is shortened to the edges of each dimension' -c 'script -qec "$R cat $T/long w; $R cat $T/long x; $R cat $T/long m" /dev/null | tr -d "\r"'
out <<'END'
49 50 51 ... 56 52 56

53 56 54 ... 50 49 52

51 49 52 ... 49 57 54

...

53 48 50 ... 50 51 48

51 51 48 ... 51 53 54

51 53 55 ... 48 57 52
51 55 52 ... 48 53 55
49
48
53
...
48
55
49
END

t_terminal 'a thousand elements, a part, a pipe and --full are printed in full' -c 'script -qec "$R cat $T/long v" /dev/null | wc -w; script -qec "$R cat $T/long w --slice 0:4,:,:" /dev/null | wc -w; "$R" cat --format text "$T/long" x | wc -w; script -qec "$R cat --full $T/long x" /dev/null | wc -w'
out <<'END'
1000
640
1001
1001
END

finish

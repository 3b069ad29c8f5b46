#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard inspect
. "$(dirname "$0")/expect.sh"

t 'tensors are listed with layout, chunks and size' inspect golden/dcp_blocks
out <<'END'
name     dtype     shape    layout                 chunks  bytes  file
blocks   float32   [8, 6]   shard(0)/2 shard(1)/2       4  192 B  4 files
nested   float32   [10, 3]  shard(0)/4                  4  120 B  4 files
strided  bfloat16  [8, 3]   shard(0)/4                  4   48 B  4 files

dcp: 3 tensors in 12 chunks, 102 parameters, 360 B; 0 objects
END

t 'objects are listed as Python prints them' inspect golden/dcp_objects
out <<'END'
object         value
bytes          b'\x00\xff\x80abc'
device         device('cuda:0')
dtype          torch.bfloat16
empty_list     []
huge           1180591620717411303424
huge_negative  -36893488147419103232
inf            -inf
large          1099511627776
nan            nan
negative       -300
no             False
none           None
pi             3.141592653589793
set            {1, 2, 3}
size           (2, 3)
step           7
text           'héllo "quoted" \\ \n 😀'
tiny           5e-324
tuple          (1, 'a', (2.5, None), ())
yes            True

dcp: 0 tensors in 0 chunks, 0 parameters, 0 B; 20 objects
END

t 'a torch.save file is listed with both' inspect golden/training.pt
out <<'END'
name                      dtype     shape   layout  chunks  bytes
buffers.0                 int64     [3]     whole        1   24 B
buffers.1.ema             float32   [2, 2]  whole        1   16 B
model.layers.0.bias       float32   [8]     whole        1   32 B
model.layers.0.weight     float32   [8, 6]  whole        1  192 B
optim.state.0.exp_avg     bfloat16  [8, 6]  whole        1   96 B
optim.state.0.exp_avg_sq  float32   [8, 6]  whole        1  192 B
optim.state.0.step        float32   []      whole        1    4 B

object                       value
best                         0.125
optim.param_groups.0.betas   (0.9, 0.999)
optim.param_groups.0.eps     1e-08
optim.param_groups.0.fused   None
optim.param_groups.0.lr      0.001
optim.param_groups.0.params  [0]
step                         1000
tag                          'run'

torch: 7 tensors in 7 chunks, 160 parameters, 556 B; 8 objects
END

t 'empty shards, empty tensors and scalars are listed' inspect golden/dcp_empty_shards
out <<'END'
name          dtype    shape   layout      chunks  bytes  file
empty_shards  int64    [2, 3]  shard(0)/3       3   48 B  3 files
nested_few    int32    [3, 2]  shard(0)/4       4   24 B  4 files
no_rows       float32  [0, 4]  whole            1    0 B  __1_0.distcp
one_element   float32  [1]     shard(0)/2       2    4 B  2 files

dcp: 4 tensors in 10 chunks, 13 parameters, 76 B; 0 objects
END

t 'a file of safetensors is found by its content' inspect golden/plain.safetensors t.float32 none scalar.bool
out <<'END'
name         dtype    shape   layout  chunks  bytes
none         float32  [0]     whole        1    0 B
scalar.bool  bool     []      whole        1    1 B
t.float32    float32  [3, 5]  whole        1   60 B

safetensors: 3 tensors in 3 chunks, 16 parameters, 61 B; 0 objects
END

t 'a folder of safetensors is listed' inspect golden/hf_parts
out <<'END'
name          dtype     shape      layout                 chunks  bytes  file
blocks        float32   [8, 6]     shard(0)/2 shard(1)/2       4  192 B  4 files
column        bfloat16  [6, 8]     shard(1)/4                  4   96 B  4 files
empty_shards  int64     [2, 3]     shard(0)/3                  3   48 B  3 files
hsdp          float32   [6, 4]     shard(0)/2                  2   96 B  2 files
middle        float64   [3, 6, 5]  shard(1)/4                  4  720 B  4 files
no_rows       float32   [0, 4]     whole                       1    0 B  shard-00002-model-00001-of-00001.safetensors
row           float32   [8, 6]     shard(0)/4                  4  192 B  4 files
strided       bfloat16  [8, 3]     shard(0)/4                  4   48 B  4 files
uneven        float32   [14, 1]    shard(0)/4                  4   56 B  4 files

safetensors: 9 tensors in 30 chunks, 302 parameters, 1.4 KiB; 0 objects
END

t 'names pick tensors' inspect golden/dcp_blocks nested blocks
out <<'END'
name    dtype    shape    layout                 chunks  bytes  file
blocks  float32  [8, 6]   shard(0)/2 shard(1)/2       4  192 B  4 files
nested  float32  [10, 3]  shard(0)/4                  4  120 B  4 files

dcp: 2 tensors in 8 chunks, 78 parameters, 312 B; 0 objects
END

t 'patterns pick tensors and objects, stars match dots' inspect golden/training.pt "*.0.*" st*
out <<'END'
name                      dtype     shape   layout  chunks  bytes
model.layers.0.bias       float32   [8]     whole        1   32 B
model.layers.0.weight     float32   [8, 6]  whole        1  192 B
optim.state.0.exp_avg     bfloat16  [8, 6]  whole        1   96 B
optim.state.0.exp_avg_sq  float32   [8, 6]  whole        1  192 B
optim.state.0.step        float32   []      whole        1    4 B

object                       value
optim.param_groups.0.betas   (0.9, 0.999)
optim.param_groups.0.eps     1e-08
optim.param_groups.0.fused   None
optim.param_groups.0.lr      0.001
optim.param_groups.0.params  [0]
step                         1000

torch: 5 tensors in 5 chunks, 153 parameters, 516 B; 6 objects
END

t 'a name that nothing has ends in 1 after the others were listed' inspect golden/dcp_blocks nested missing
code 1
out <<'END'
name    dtype    shape    layout      chunks  bytes  file
nested  float32  [10, 3]  shard(0)/4       4  120 B  4 files

dcp: 1 tensor in 4 chunks, 30 parameters, 120 B; 0 objects
END
err <<'END'
reshard: nothing in "golden/dcp_blocks" is called "missing"
END

t 'the tree shows sums' inspect --tree golden/training.pt
out <<'END'
name            dtype     shape   tensors  parameters  bytes
buffers                                 2           7   40 B
  0             int64     [3]                       3   24 B
  1.ema         float32   [2, 2]                    4   16 B
model.layers.0                          2          56  224 B
  bias          float32   [8]                       8   32 B
  weight        float32   [8, 6]                   48  192 B
optim.state.0                           3          97  292 B
  exp_avg       bfloat16  [8, 6]                   48   96 B
  exp_avg_sq    float32   [8, 6]                   48  192 B
  step          float32   []                        1    4 B

object                       value
best                         0.125
optim.param_groups.0.betas   (0.9, 0.999)
optim.param_groups.0.eps     1e-08
optim.param_groups.0.fused   None
optim.param_groups.0.lr      0.001
optim.param_groups.0.params  [0]
step                         1000
tag                          'run'

torch: 7 tensors in 7 chunks, 160 parameters, 556 B; 8 objects
END

t 'JSON has every chunk with its place in a file' inspect --json golden/dcp_blocks
out <<'END'
{
  "format": "dcp",
  "path": "golden/dcp_blocks",
  "parameters": 102,
  "bytes": 360,
  "tensors": [
    {"name": "blocks", "dtype": "float32", "shape": [8, 6], "bytes": 192, "chunks": [{"offset": [0, 0], "size": [4, 3], "file": "__0_0.distcp", "file_offset": 0, "length": 1577}, {"offset": [0, 3], "size": [4, 3], "file": "__1_0.distcp", "file_offset": 0, "length": 1577}, {"offset": [4, 0], "size": [4, 3], "file": "__2_0.distcp", "file_offset": 0, "length": 1577}, {"offset": [4, 3], "size": [4, 3], "file": "__3_0.distcp", "file_offset": 0, "length": 1577}]},
    {"name": "nested", "dtype": "float32", "shape": [10, 3], "bytes": 120, "chunks": [{"offset": [0, 0], "size": [3, 3], "file": "__0_0.distcp", "file_offset": 1577, "length": 1577}, {"offset": [3, 0], "size": [2, 3], "file": "__1_0.distcp", "file_offset": 1577, "length": 1577}, {"offset": [5, 0], "size": [3, 3], "file": "__2_0.distcp", "file_offset": 1577, "length": 1577}, {"offset": [8, 0], "size": [2, 3], "file": "__3_0.distcp", "file_offset": 1577, "length": 1577}]},
    {"name": "strided", "dtype": "bfloat16", "shape": [8, 3], "bytes": 48, "chunks": [{"offset": [0, 0], "size": [2, 3], "file": "__0_0.distcp", "file_offset": 3154, "length": 1577}, {"offset": [4, 0], "size": [2, 3], "file": "__1_0.distcp", "file_offset": 3154, "length": 1577}, {"offset": [2, 0], "size": [2, 3], "file": "__2_0.distcp", "file_offset": 3154, "length": 1577}, {"offset": [6, 0], "size": [2, 3], "file": "__3_0.distcp", "file_offset": 3154, "length": 1577}]}
  ],
  "objects": []
}
END

t 'JSON has the values of objects' inspect --json golden/training.pt "step" "best" "*.betas"
out <<'END'
{
  "format": "torch",
  "path": "golden/training.pt",
  "parameters": 0,
  "bytes": 0,
  "tensors": [],
  "objects": [
    {"name": "optim.param_groups.0.betas", "value": [0.9, 0.999]},
    {"name": "step", "value": 1000},
    {"name": "best", "value": 0.125}
  ]
}
END

t 'JSON of a checkpoint without tensors is valid' inspect --json golden/dcp_objects none
out <<'END'
{
  "format": "dcp",
  "path": "golden/dcp_objects",
  "parameters": 0,
  "bytes": 0,
  "tensors": [],
  "objects": [
    {"name": "none", "value": null}
  ]
}
END

t 'JSON and tree exclude each other' inspect --json --tree golden/dcp_rows
code 2
err <<'END'
reshard: --json and --tree can't be combined
try: reshard help inspect
END

t 'a path that is not there ends in 3' inspect golden/missing
code 3
err <<'END'
reshard: could not find "golden/missing": No such file or directory
END

t 'a folder without a checkpoint ends in 4' -c '"$R" inspect "$T" 2>"$T/e"; code=$?; sed "s|$T|FOLDER|" "$T/e"; exit $code'
code 4
out <<'END'
reshard: checkpoint "FOLDER": no checkpoint found in it: neither ".metadata" nor a ".safetensors" file
END

t 'an empty file ends in 4' -c ': >"$T/empty"; cd "$T" && "$R" inspect empty'
code 4
err <<'END'
reshard: checkpoint "empty": it is an empty file, not a checkpoint
END

t 'a file of a DCP checkpoint is told to be one' -c 'for f in .metadata __0_0.distcp; do "$R" inspect golden/dcp_rows/$f; echo $?; done 2>&1'
out <<'END'
reshard: checkpoint "golden/dcp_rows/.metadata": it is a part of a DCP checkpoint: the folder that it lies in is one
4
reshard: checkpoint "golden/dcp_rows/__0_0.distcp": it is a part of a DCP checkpoint: the folder that it lies in is one
4
END

t 'a file of something else ends in 4' inspect golden/dcp_rows.json
code 4
err <<'END'
reshard: checkpoint "golden/dcp_rows.json": it is neither a torch.save archive nor a safetensors file
END

t 'a device ends in 4' inspect /dev/null
code 4
err <<'END'
reshard: "/dev/null" is neither a file nor a folder
END

t 'a broken checkpoint ends in 4' inspect bad/dcp/cut_metadata
code 4
err <<'END'
reshard: checkpoint "bad/dcp/cut_metadata": file ".metadata": byte 456: the opcode needs 37 more bytes, the pickle has 12
END

t 'a pickle that would run something ends in 4' inspect bad/dcp/calls_os_system
code 4
err <<'END'
reshard: checkpoint "bad/dcp/calls_os_system": file ".metadata": byte 29: refused, because loading it would call "os.system"
END

st "$T/none" '{}' ''
t 'an empty checkpoint has nothing' -c '"$R" inspect "$T/none"'
out <<'END'
safetensors: 0 tensors in 0 chunks, 0 parameters, 0 B; 0 objects
END

t 'an empty checkpoint as JSON' -c '"$R" inspect --json "$T/none" | tail -n +4'
out <<'END'
  "parameters": 0,
  "bytes": 0,
  "tensors": [],
  "objects": []
}
END

st "$T/strange" '{"k\u00e4se\u007f\u009b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' A
t 'control characters in names do not reach the terminal' -c '"$R" inspect "$T/strange"'
out <<'END'
name          dtype  shape  layout  chunks  bytes
käse\x7f\x9b  uint8  [1]    whole        1    1 B

safetensors: 1 tensor in 1 chunk, 1 parameter, 1 B; 0 objects
END

st "$T/layers" '{"l.10.w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"l.9.w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"l.2.w":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"l.1.w":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},"l.11.w":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}' 123456
t 'the tree sorts numbers by their value and folds those that are alike' -c '"$R" inspect --tree "$T/layers"'
out <<'END'
name      dtype  shape  tensors  parameters  bytes
l                             5           6    6 B
  [1-2]                       2           2    2 B
    w     uint8  [1]                      1    1 B
  [9-10]                      2           2    2 B
    w     uint8  [1]                      1    1 B
  11.w    uint8  [2]                      2    2 B

safetensors: 5 tensors in 5 chunks, 6 parameters, 6 B; 0 objects
END

t 'objects of unknown classes are shown with what their pickle says' inspect golden/dcp_unknown_objects
out <<'END'
object    value
fraction  fractions.Fraction(1, 3)
inside    [1, fractions.Fraction(2, 3)]

dcp: 0 tensors in 0 chunks, 0 parameters, 0 B; 2 objects
END

t "Megatron's common.pt shows the arguments" cat golden/megatron/torch_dist/common.pt args
out <<'END'
argparse.Namespace(hidden_size=6, bf16=True)
END

t "DeepSpeed's version is said" -c 'for i in zero3 zero_universal; do "$R" inspect golden/folders/$i | tail -n 1; done'
out <<'END'
zero (DeepSpeed 0.19.8 ZeRO stage 3 on 2 ranks): 15 tensors in 40 chunks, 223 parameters, 892 B; 47 objects
zero (DeepSpeed 0.19.8's universal form): 14 tensors in 14 chunks, 217 parameters, 868 B; 47 objects
END

t 'a module in a legacy file leaves the tensor beside it open' inspect bad/legacy/module_beside_a_tensor.pt
out <<'END'
name  dtype    shape  layout  chunks  bytes
w     float32  [2]    whole        1    8 B

object  value
model   <torch.nn.modules.linear.Linear>

torch (legacy form): 1 tensor in 1 chunk, 2 parameters, 8 B; 1 object
1 storage with 8 B inside objects of unknown classes: to get their tensors, load them in Python and save the state_dict
END

finish

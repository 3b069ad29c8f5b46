#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard plan
. "$(dirname "$0")/expect.sh"

t 'each rank is told what it needs, reads, keeps and moves' plan golden/dcp_blocks --layout "mesh tp=2; * shard(0)@tp"
out <<'END'
rank  needs  reads  pieces  files  keeps  sends  receives
   0  180 B  180 B       6      3   96 B    0 B      84 B
   1  180 B  180 B       6      3   12 B   72 B     168 B
   2    0 B    0 B       0      0    0 B   96 B       0 B
   3    0 B    0 B       0      0    0 B   84 B       0 B
 all  360 B  360 B      12      4  108 B  252 B     252 B

needs: memory of the rank; reads: bytes from files, in so many pieces
keeps, sends, receives: if the ranks that wrote the files still held them
END

t 'ranks that only send are listed too' plan golden/dcp_rows -l "mesh tp=1; * shard(0)@tp"
out <<'END'
rank  needs  reads  pieces  files  keeps  sends  receives
   0  344 B  344 B      12      4   88 B    0 B     256 B
   1    0 B    0 B       0      0    0 B   88 B       0 B
   2    0 B    0 B       0      0    0 B   88 B       0 B
   3    0 B    0 B       0      0    0 B   80 B       0 B
 all  344 B  344 B      12      4   88 B  256 B     256 B

needs: memory of the rank; reads: bytes from files, in so many pieces
keeps, sends, receives: if the ranks that wrote the files still held them
END

t 'files that tell no rank are only read' plan golden/hf_parts --layout "mesh a=3; * shard(0)@a"
out <<'END'
rank    needs    reads  pieces  files
   0    510 B    510 B      17      4
   1    510 B    510 B      20      4
   2    428 B    428 B      14      4
 all  1.4 KiB  1.4 KiB      51      4

needs: memory of the rank; reads: bytes from files, in so many pieces
END

t 'replicas are read by each rank' plan golden/dcp_blocks --layout "mesh dp=3; * replicate"
out <<'END'
rank    needs    reads  pieces  files  keeps  sends  receives
   0    360 B    360 B      12      4   96 B  192 B     264 B
   1    360 B    360 B      12      4   84 B  168 B     276 B
   2    360 B    360 B      12      4   96 B  192 B     264 B
   3      0 B      0 B       0      0    0 B  252 B       0 B
 all  1.1 KiB  1.1 KiB      36      4  276 B  804 B     804 B

needs: memory of the rank; reads: bytes from files, in so many pieces
keeps, sends, receives: if the ranks that wrote the files still held them
END

t 'the same as JSON' plan golden/dcp_blocks --layout "mesh tp=2; * shard(0)@tp" --json
out <<'END'
{
  "path": "golden/dcp_blocks",
  "tensors": 3,
  "ranks": [
    {"rank": 0, "needs": 180, "reads": 180, "files": 3, "pieces": 6, "keeps": 96, "sends": 0, "receives": 84, "peers": 2},
    {"rank": 1, "needs": 180, "reads": 180, "files": 3, "pieces": 6, "keeps": 12, "sends": 72, "receives": 168, "peers": 3},
    {"rank": 2, "needs": 0, "reads": 0, "files": 0, "pieces": 0, "keeps": 0, "sends": 96, "receives": 0, "peers": 2},
    {"rank": 3, "needs": 0, "reads": 0, "files": 0, "pieces": 0, "keeps": 0, "sends": 84, "receives": 0, "peers": 1}
  ],
  "total": {
    "needs": 360,
    "reads": 360,
    "pieces": 12,
    "keeps": 108,
    "sends": 252,
    "receives": 252
  }
}
END

t 'a file may hold the layout' -c 'printf "mesh tp=2 # two\n* shard(0)@tp\n" >"$T/rules"; "$R" plan golden/dcp_rows --layout "$T/rules" | head -n 3'
out <<'END'
rank  needs  reads  pieces  files  keeps  sends  receives
   0  172 B  172 B       8      4   76 B   12 B      96 B
   1  172 B  172 B       9      4   16 B   72 B     156 B
END

t 'a plan without a layout is misuse' plan golden/dcp_rows
code 2
err <<'END'
reshard: plan needs --layout SPEC
try: reshard help plan
END

t 'a layout with an axis that is not there is misuse' plan golden/dcp_rows --layout "mesh tp=2; * shard(0)@dp"
code 2
err <<'END'
reshard: layout "mesh tp=2; * shard(0)@dp": line 1, column 23: expected an axis of the mesh, found "dp"
END

t 'a layout that leaves a tensor out is misuse' plan golden/dcp_blocks --layout "mesh tp=2; nested shard(0)@tp"
code 2
err <<'END'
reshard: no rule matches the tensor "blocks"; a last rule "* replicate" would
END

t 'a layout that cuts a dimension that is not there is misuse' plan golden/dcp_blocks --layout "mesh tp=2; * shard(2)@tp"
code 2
err <<'END'
reshard: tensor "blocks", rule in line 1: axis "tp" shards dimension 2, but the tensor has 2 dimensions
END

t 'a file that holds no layout is misuse' plan golden/dcp_rows --layout golden/plain.safetensors
code 2
err <<'END'
reshard: "golden/plain.safetensors" is binary, not a layout
END

t 'a folder without a checkpoint ends in 4' -c 'mkdir "$T/none"; cd "$T"; "$R" plan none --layout "mesh a=1; * replicate"'
code 4
err <<'END'
reshard: checkpoint "none": no checkpoint found in it: neither ".metadata" nor a ".safetensors" file
END

printf '# two kinds\na f32 8 4\nb{0..1} bf16 4\n' >"$T/some.shapes"
export FROM='mesh dp=4; b* replicate; * shard(0)@dp' TO='mesh tp=2; b* replicate; * shard(1)@tp'
t 'a simulation counts what ranks on hosts would move' \
    -c 'cd $T && $R plan some.shapes --from "$FROM" --layout "$TO" --simulate ranks=4,hosts=2 --json | grep -v -e seconds -e limit -e memory'
out <<'END'
{
  "path": "some.shapes",
  "tensors": 3,
  "bytes": 144,
  "ranks": 4,
  "hosts": 2,
  "chunks": 6,
  "metadata": 678,
  "planned": 4,
  "save": {
    "bytes": 144,
    "host": 72,
    "rank": 36,
    "files": 1,
    "requests": 1,
    "messages": 12,
  },
  "load": {
    "bytes": 144,
    "host": 144,
    "rank": 80,
    "files": 4,
    "requests": 6,
    "messages": 12,
  },
  "live": {
    "bytes": 96,
    "host": 64,
    "rank": 64,
    "messages": 4,
  }
}
END

t 'the slowest part of the machine is named' \
    -c '$R plan golden/dcp_rows -l "mesh tp=65536; * shard(0)@tp" --simulate store=1,link=1GB --json | grep -e limit -e hosts'
out <<'END'
  "hosts": 8192,
    "limit": "the store"
    "limit": "the store"
    "limit": "nothing"
END

for line in 'a f33 8' 'a f32 -1' 'a f32 x' 'a' 'a{0..} f32 1' 'a f32 1 1 1 1 1 1 1 1 1'; do
    printf 'x f32 1\n%s\n' "$line" >"$T/bad.shapes"
    t "a line of shapes that can't be read is named: $line" \
        -c 'cd $T && $R plan bad.shapes --layout "mesh tp=2; * replicate" --simulate hosts=1 2>&1 | cut -c1-36'
    out <<'END'
reshard: "bad.shapes", line 2: expec
END
done

t 'more ranks than the machine has are refused' \
    -c 'cd $T && $R plan some.shapes --layout "$TO" --simulate ranks=1'
err <<'END'
reshard: the layouts have 2 ranks, but --simulate has ranks=1
try: reshard help plan
END
code 2

t 'a machine is described by known words' -c 'cd $T && $R plan some.shapes --layout "$TO" --simulate disk=1'
err <<'END'
reshard: --simulate takes ranks=N,hosts=N,store=SIZE,link=SIZE,memory=SIZE, the last three in bytes a second
try: reshard help plan
END
code 2

t 'a layout to save in needs a simulation' -c 'cd $T && $R plan some.shapes --layout "$TO" --from "$FROM"'
err <<'END'
reshard: --from needs --simulate
try: reshard help plan
END
code 2

finish

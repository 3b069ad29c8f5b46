#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard verify
. "$(dirname "$0")/expect.sh"

t 'a good checkpoint is ok' verify golden/dcp_rows
out <<'END'
ok: dcp, 3 tensors, 344 B, 0 objects
END

t 'a good file is ok' verify golden/training.pt
out <<'END'
ok: torch, 7 tensors, 556 B, 8 objects
END

t '-q says nothing about a good one' verify -q golden/hf_parts

t 'where nothing can find changed data, that is said' verify golden/hf_parts
out <<'END'
ok: safetensors, 9 tensors, 1.4 KiB, 0 objects; no checksums: changes can't be detected; `reshard manifest` adds checksums
END

t 'with a checksum file all bytes are checked' -c 'cp -r golden/hf_parts "$T/hf" && "$R" manifest -q "$T/hf" && "$R" verify "$T/hf"'
out <<'END'
ok: safetensors, 9 tensors, 1.4 KiB, 0 objects
END

t 'work that is done at once shows no progress' verify --progress golden/dcp_rows
out <<'END'
ok: dcp, 3 tensors, 344 B, 0 objects
END

t_terminal 'on a terminal what was drawn is gone before the result' -c 'script -qec "$R verify golden/dcp_rows" /dev/null | tr "\r" "\n" | sed "s/^.\[K//" | grep -v "^verifying\|^$"'
out <<'END'
ok: dcp, 3 tensors, 344 B, 0 objects
END

t '--quick reads only metadata' verify --quick golden/dcp_rows
out <<'END'
ok: dcp, 3 tensors, 344 B, 0 objects; no data were read
END

t 'a good one as JSON' verify --json golden/dcp_rows
out <<'END'
{
  "format": "dcp",
  "path": "golden/dcp_rows",
  "quick": false,
  "tensors": 3,
  "bytes": 344,
  "checksums": true,
  "damages": [],
  "damaged": [],
  "gone": [],
  "ok": true
}
END

t 'a flipped bit is damage and ends in 1' verify bad/dcp/item_bit_flipped
code 1
out <<'END'
damage: tensor "w": file "__0_0.distcp": the data from byte 301 on have the CRC32 b5aee760, the file says 2e3fa576
1 damage
damaged: w
0 whole, 1 damaged, 0 gone
END

t '-q still names damage' verify -q bad/dcp/item_bit_flipped
code 1
out <<'END'
damage: tensor "w": file "__0_0.distcp": the data from byte 301 on have the CRC32 b5aee760, the file says 2e3fa576
1 damage
damaged: w
0 whole, 1 damaged, 0 gone
END

t 'damage as JSON' verify --json bad/dcp/item_bit_flipped
code 1
out <<'END'
{
  "format": "dcp",
  "path": "bad/dcp/item_bit_flipped",
  "quick": false,
  "tensors": 1,
  "bytes": 8,
  "checksums": true,
  "damages": [
    {"error": "RSD_E_CORRUPT", "message": "tensor \"w\": file \"__0_0.distcp\": the data from byte 301 on have the CRC32 b5aee760, the file says 2e3fa576"}
  ],
  "damaged": [
    "w"
  ],
  "gone": [],
  "ok": false
}
END

t '--quick does not see a flipped bit of the data' verify --quick bad/dcp/item_bit_flipped
out <<'END'
ok: dcp, 1 tensor, 8 B, 0 objects; no data were read
END

t 'metadata that are cut end in 4' verify bad/dcp/cut_metadata
code 4
err <<'END'
reshard: checkpoint "bad/dcp/cut_metadata": file ".metadata": byte 456: the opcode needs 37 more bytes, the pickle has 12
END

t 'a hole between chunks ends in 4' verify bad/dcp/chunks_leave_hole
code 4
err <<'END'
reshard: checkpoint "bad/dcp/chunks_leave_hole": tensor "w": chunks: the boxes leave a hole: no box holds element [1]; they cover 1 of 2 elements
END

t 'chunks that overlap end in 4' verify bad/dcp/chunks_overlap
code 4
err <<'END'
reshard: checkpoint "bad/dcp/chunks_overlap": tensor "w": the chunks [0:2] and [1:2] overlap
END

t 'a file that is missing is damage' -c 'cp -r golden/dcp_rows "$T/less" && rm "$T/less/__1_0.distcp" && "$R" verify "$T/less"'
code 1
out <<'END'
damage: file "__1_0.distcp" is missing
1 damage
damaged: row
damaged: uneven
damaged: column
0 whole, 3 damaged, 0 gone
END

t 'weights missing from a universal form are gone' -c '
    cp -r golden/folders/zero_universal "$T/uni" && rm "$T"/uni/*/zero/b.weight/fp32.pt && "$R" verify "$T/uni"'
code 1
out <<'END'
damage: file "zero/b.weight/fp32.pt" is missing
1 damage
gone: b.weight
59 whole, 0 damaged, 1 gone
END

t 'a parameter missing from a universal form as a whole is gone' -c '
    rm -r "$T"/uni/*/zero/b.weight && "$R" verify "$T/uni"'
code 1
out <<'END'
damage: file "zero/b.weight/fp32.pt" is missing
1 damage
gone: b.weight
56 whole, 0 damaged, 1 gone
END

t 'such a parameter is not left out of a conversion in silence' -c '
    cd "$T" && "$R" convert uni uni.safetensors --exclude "optim.*" 2>&1 | sed "s/could not.*//"'
out <<'END'
reshard: checkpoint "uni": parameter "b.weight", which "zero_pp_rank_0_mp_rank_00_model_states.pt" lists: 
reshard: `reshard verify` lists the damage, --salvage converts the rest
END

t "Megatron's common.pt that was cut is damage" -c '
    cp -r golden/megatron/torch_dist "$T/mg" && truncate -s 300 "$T/mg/common.pt" && "$R" verify "$T/mg"'
code 1
out <<'END'
damage: file "common.pt": no end record at byte 278: this is not a zip archive, or it was cut short
skipped: unknown attribute Metadata.all_local_plans
1 damage
END

t "Megatron's common.pt that is missing is damage" -c 'rm "$T/mg/common.pt" && "$R" verify "$T/mg"'
code 1
out <<'END'
damage: file "common.pt" is missing
skipped: unknown attribute Metadata.all_local_plans
1 damage
END

t "a folder without Megatron's common.pt is still Megatron's" -c '"$R" inspect "$T/mg" | tail -n 1'
out <<'END'
dcp (Megatron-Core torch_dist, common.pt is missing): 6 tensors in 25 chunks, 130 parameters, 520 B; 2 objects
END

t 'metadata of classes with slots are read, and what is skipped in them listed' verify bad/dcp/slots
out <<'END'
skipped: unknown attribute ChunkStorageMetadata.codec
skipped: unknown attribute StorageMeta.region
ok: dcp, 1 tensor, 8 B, 0 objects
END

t 'a path that is not there ends in 3' verify golden/missing
code 3
err <<'END'
reshard: could not find "golden/missing": No such file or directory
END

t 'a small file that was cut says how long it was' -c '
    cd "$T" && "$R" demo --dir cut >/dev/null 2>&1 && "$R" convert -q cut/eight one.safetensors 2>/dev/null
    truncate -s -4 one.safetensors && "$R" verify one.safetensors | head -n 1'
out <<'END'
damage: file "one.safetensors" has 3452 bytes, its checksum file says 3456
END

finish

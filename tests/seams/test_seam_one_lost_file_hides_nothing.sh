#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A data file that is missing or cut does not hide the rest: it is listed, verified and can be rescued.
. "$(dirname "$0")/../cli/expect.sh"

# ---- DCP ----

"$R" convert -q golden/dcp_items "$T/dcp" --layout 'mesh tp=2; model.* shard(0)@tp; * replicate' 2>/dev/null
"$R" convert -q golden/dcp_items "$T/cut" --layout 'mesh tp=2; model.* shard(0)@tp; * replicate' 2>/dev/null
rm "$T/dcp/__1_0.distcp"
t 'inspect lists a checkpoint that lacks a file, and what that costs' -c '"$R" inspect "$T/dcp" | sed -n "s/^\(model[^ ]*\) .*/\1/p; /whole,/p; /^damaged/p; /^gone/p"; "$R" inspect "$T/dcp" >/dev/null'
code 1
out <<'END'
model.layers.0.bias
model.layers.0.weight
damaged: model.layers.0.weight
damaged: model.layers.0.bias
gone: optim.state.0.exp_avg
gone: buffers.0
11 whole, 2 damaged, 2 gone
END

t 'verify names the file and what is damaged' verify "$T/dcp"
code 1
out <<'END'
damage: file "__1_0.distcp" is missing
1 damage
damaged: model.layers.0.weight
damaged: model.layers.0.bias
gone: optim.state.0.exp_avg
gone: buffers.0
11 whole, 2 damaged, 2 gone
END

t 'convert refuses it and says what can be done' -c 'cd "$T"; "$R" convert dcp out; ls -d out*'
code 2
err <<END
reshard: checkpoint "dcp": could not open "dcp/__1_0.distcp" in "$T/": No such file or directory
reshard: \`reshard verify\` lists the damage, --salvage converts the rest
ls: cannot access 'out*': No such file or directory
END

t 'convert --salvage rescues the rest and says so' -c 'cd "$T"; "$R" convert -q --salvage dcp out; echo $?; "$R" verify out; "$R" diff out "$OLDPWD/golden/dcp_items" --exclude "model.*" --exclude "*exp_avg" --exclude "buffers.*"'
out <<'END'
1
ok: dcp, 3 tensors, 212 B, 8 objects
same: 2 tensors, 196 B, 8 objects
END
err <<'END'
reshard: damage: file "__1_0.distcp" is missing
reshard: left out: model.layers.0.weight, model.layers.0.bias: damaged
reshard: left out: optim.state.0.exp_avg, buffers.0: nothing is left of it
END

rm "$T/cut/.reshard-sums"
truncate -s 3000 "$T/cut/__0_0.distcp"
t 'a file that is cut: what lies before the cut is whole' -c '"$R" verify "$T/cut" | grep -v ^damaged: | grep -v ^gone:; "$R" convert -q --salvage "$T/cut" "$T/rescued" 2>/dev/null; echo $?; "$R" verify -q "$T/rescued" && "$R" diff -q "$T/rescued" golden/dcp_items --include "$("$R" inspect --json "$T/rescued" | sed -n "s/.*\"name\": \"\([^\"]*\)\".*\"dtype.*/\1/p" | head -n 1)"'
out <<'END'
damage: file "__0_0.distcp" has 3000 bytes, 18473 are needed
1 damage
4 whole, 3 damaged, 8 gone
1
END

# ---- a flipped bit ----

cp -r golden/dcp_rows "$T/flip"
printf X | dd of="$T/flip/__1_0.distcp" bs=1 seek=704 conv=notrunc 2>/dev/null
t 'what only checksums find is left out too' -c 'cd "$T"; "$R" convert -q --salvage flip flipped 2>&1 | grep -v ^reshard:.damage; "$R" inspect flipped | grep -c "^row"'
code 1
out <<'END'
reshard: left out: row: damaged
0
END

# ---- safetensors ----

cp -r golden/hf_index "$T/hf"
rm "$T/hf/model-00002-of-00003.safetensors"
t 'of a file that is gone the index still has the names' -c '"$R" inspect "$T/hf" | tail -n 3; "$R" convert -q --salvage "$T/hf" "$T/hf.safetensors" 2>"$T/said"; echo $?; grep "nothing is left of it" "$T/said"; "$R" verify "$T/hf" | tail -n 1'
out <<'END'
gone: no_rows
gone: six_dims
29 whole, 0 damaged, 15 gone
1
reshard: left out: t.uint8, t.uint64, t.int32, t.bfloat16, t.complex64 and 10 more: nothing is left of it
29 whole, 0 damaged, 15 gone
END

for how in empty short garbage; do
    cp -r golden/hf_index "$T/$how"
    cp golden/hf_index/model-00002-of-00003.safetensors "$T/$how/whole"
    case $how in
    empty) : ;;
    short) head -c 100 "$T/$how/whole" ;;
    garbage) tr '\0-\377' '\377' <"$T/$how/whole" ;;
    esac >"$T/$how/model-00002-of-00003.safetensors"
    rm "$T/$how/whole"
done
t 'a file whose header is gone is damage to whoever asks' -c 'cd "$T"; for how in empty short garbage; do "$R" verify $how >$how.out; echo $?; sed -n "1p;\$p" $how.out; "$R" verify --quick $how >/dev/null; echo $?; "$R" convert -q --salvage $how $how.safetensors 2>/dev/null; echo $?; done'
out <<'END'
1
damage: file "model-00002-of-00003.safetensors": it has 0 bytes, but a header needs 8
29 whole, 0 damaged, 15 gone
1
1
1
damage: file "model-00002-of-00003.safetensors": byte 0: the header claims 1840 bytes, the file has 92 after the length
29 whole, 0 damaged, 15 gone
1
1
1
damage: file "model-00002-of-00003.safetensors": byte 0: the header claims 18446744073709551615 bytes, the maximum is 100000000
29 whole, 0 damaged, 15 gone
1
1
END

cp golden/plain.safetensors "$T/one.safetensors"
truncate -s -20 "$T/one.safetensors"
t 'a single file that is cut' -c '"$R" inspect "$T/one.safetensors" | tail -n 1; "$R" convert -q --salvage "$T/one.safetensors" "$T/two.safetensors" 2>/dev/null; echo $?; "$R" verify -q "$T/two.safetensors"'
out <<'END'
41 whole, 1 damaged, 2 gone
1
END

t 'a torch.save file that is cut has lost its directory: nothing can be told' -c 'head -c 3000 golden/training.pt >"$T/cut.pt"; "$R" verify "$T/cut.pt" 2>/dev/null'
code 4

t 'a whole checkpoint is converted as ever' -c '"$R" convert -q --salvage golden/dcp_rows "$T/whole" && "$R" diff golden/dcp_rows "$T/whole"'
out <<'END'
same: 3 tensors, 344 B, 0 objects
END

finish

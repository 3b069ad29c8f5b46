#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# DeepSpeed's folders become its universal form, from which it resumes on any number of ranks: nothing is lost on the way, and an
# interrupted conversion resumes.
. "$(dirname "$0")/../cli/expect.sh"

for zero in zero1_bf16 zero1_bf16_optimizer zero2 zero3 zero_universal; do
    t "$zero: tensors and objects are the same" -c '
        "$R" convert -q golden/folders/'$zero' "$T/'$zero'" --to universal 2>/dev/null &&
        "$R" diff --exclude "optim.[zld][eos]*" --exclude "deepspeed.universal*" golden/folders/'$zero' "$T/'$zero'" 2>/dev/null | sed "s/:.*objects/: objects/" &&
        "$R" verify "$T/'$zero'" | sed "s/,.*//"'
    out <<'END'
same: objects
ok: zero
END
done

t 'the files that DeepSpeed wants' -c 'cd "$T/zero3" && cat latest_universal && echo && find . -type f | LC_ALL=C sort | grep -v /b'
out <<'END'
.
./.reshard-sums
./latest_universal
./mp_rank_00_model_states.pt
./zero/a.bias/exp_avg.pt
./zero/a.bias/exp_avg_sq.pt
./zero/a.bias/fp32.pt
./zero/a.bias/step.pt
./zero/a.weight/exp_avg.pt
./zero/a.weight/exp_avg_sq.pt
./zero/a.weight/fp32.pt
./zero/a.weight/step.pt
./zero/frozen.weight/fp32.pt
./zero/optimizer_state.pt
./zero/tied.weight/fp32.pt
./zero_pp_rank_0_mp_rank_00_model_states.pt
END

t 'a file is a dict, and a step is not' -c '"$R" inspect "$T/zero3/zero/a.weight/fp32.pt" | head -n 5; "$R" inspect "$T/zero3/zero/a.weight/step.pt" | tail -n 1'
out <<'END'
name   dtype    shape   layout  chunks  bytes
param  float32  [7, 5]  whole        1  140 B

object   value
cat_dim  0
torch: 1 tensor in 1 chunk, 1 parameter, 4 B; 0 objects
END

t 'experts that ranks divided say so, for weights and moments' -c '
    "$R" convert -q bad/zero/experts_of_autoep "$T/experts" --to universal 2>/dev/null &&
    for k in fp32 exp_avg; do "$R" inspect "$T/experts/zero/e.w1/$k.pt" | grep -E "^(param|is_exp|ep_num)"; done'
out <<'END'
param  float32  [2, 2]  whole        1   16 B
ep_num_experts   2
is_expert_param  True
param  float32  [2, 2]  whole        1   16 B
ep_num_experts   2
is_expert_param  True
END

t 'it may be overwritten' -c '"$R" convert -q --overwrite golden/folders/zero2 "$T/zero3" --to universal 2>/dev/null && "$R" diff -q "$T/zero2" "$T/zero3"'

t 'but not if it holds something else' -c 'echo mine >"$T/zero3/zero/a.weight/notes" && "$R" convert -q --overwrite golden/folders/zero3 "$T/zero3" --to universal 2>&1 | tail -n 1 | sed "s|$T|T|"'
out <<'END'
reshard: checkpoint "T/zero3": holds "zero/a.weight/notes", which is not part of a checkpoint and would be removed by overwriting it
END

t 'by way of DCP, with the names that trainers use' -c '
    "$R" convert -q golden/folders/zero3 "$T/dcp" --rename "s/^([ab][.])/model.\\1/" 2>/dev/null && "$R" cat "$T/dcp" model.a.weight >/dev/null &&
    "$R" convert -q "$T/dcp" "$T/back" --to universal 2>/dev/null && "$R" convert -q golden/folders/zero3 "$T/direct" --to universal 2>/dev/null &&
    "$R" diff "$T/direct" "$T/back" | sed "s/:.*objects/: objects/"'
out <<'END'
same: objects
END

t 'an interrupted run resumes' -c '
    (ulimit -f 4; "$R" convert -q golden/folders/zero3 "$T/cut" --to universal >/dev/null 2>&1); ls -d "$T"/cut* | sed "s/.*cut[.]partial-.*/partial/" &&
    "$R" convert -q golden/folders/zero3 "$T/cut" --to universal --resume 2>/dev/null && "$R" verify -q "$T/cut" && "$R" diff -q "$T/direct" "$T/cut" && ls -d "$T"/cut* | wc -l'
out <<'END'
partial
1
END

t 'numbered parameters are refused' -c '"$R" convert -q golden/training.pt "$T/numbered" --to universal 2>&1 | sed "s|$T|T|"'
out <<'END'
reshard: checkpoint "T/numbered": "optim.state.0.step": no tensor "0" has this optimizer state; the universal form goes by names
END

t 'to another format, with nothing beside' -c '"$R" convert "$T/zero3" "$T/plain" 2>&1 | sed "s|$T|T|; s/objects, .*in/objects in/; s/, [0-9.]* s//"'
out <<'END'
reshard: wrote T/plain: dcp, 15 tensors, 50 objects in 2 files
END

t 'one file is refused' -c '"$R" convert -q golden/folders/zero3 "$T/x.pt" --to universal 2>&1 | tail -n 1 | sed "s|$T|T|"'
out <<'END'
reshard: checkpoint "T/x.pt": DeepSpeed's universal form is a folder, not a file
END

finish

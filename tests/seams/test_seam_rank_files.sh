#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A folder in which every rank put its DTensors is one checkpoint; where replicas differ the first is loaded and verify says so.
. "$(dirname "$0")/../cli/expect.sh"

t 'inspect says what it is' -c '"$R" inspect golden/folders/rank_meshes | tail -n 1'
out <<'END'
ranks (torch.save of DTensors on 4 ranks): 9 tensors in 21 chunks, 89 parameters, 356 B; 1 object
END

t 'it becomes one file, and back' -c '
    "$R" convert golden/folders/rank_meshes "$T/one.pt" 2>/dev/null &&
    "$R" diff golden/folders/rank_meshes "$T/one.pt"'
out <<'END'
same: 9 tensors, 356 B, 1 object
END

t 'ShardedTensors of all ranks are whole tensors' -c '"$R" inspect golden/folders/rank_sharded | tail -n 1; "$R" cat --format text golden/folders/rank_sharded alone'
out <<'END'
ranks (torch.save of ShardedTensors on 4 ranks): 3 tensors in 12 chunks, 43 parameters, 172 B; 0 objects
5 5.25
5.5 5.75
END

t 'what one rank saved for all is read too' -c '"$R" inspect bad/ranks/rest_is_saved_by_one | grep "^model\|^extra" | cut -d" " -f1'
out <<'END'
model.w
extra_state.step
END

t 'files of other families are not rank files' -c '"$R" inspect bad/ranks/logs_beside | grep "^w\|^step\|^log\|^ranks" | cut -d: -f1'
out <<'END'
w     float32  [4]    shard(0)/2       2   16 B  2 files
ranks (torch.save of DTensors on 2 ranks)
END

t 'the number of a rank need not be the last in a name' -c '
    for name in world step; do "$R" inspect bad/ranks/number_before_$name | grep "^w\|^ranks" | cut -d: -f1; done'
out <<'END'
w     float32  [4]    shard(0)/2       2   16 B  2 files
ranks (torch.save of DTensors on 2 ranks)
w     float32  [4]    shard(0)/2       2   16 B  2 files
ranks (torch.save of DTensors on 2 ranks)
END

t 'the file of a single rank names its folder too' -c 'mkdir "$T/one" && cp bad/ranks/two_worlds/model_world_size_1_rank_0.pt "$T/one" &&
    for at in one/model_world_size_1_rank_0.pt one; do "$R" inspect "$T/$at" | grep "^torch\|^ranks" | cut -d: -f1-2; done'
out <<'END'
torch (the file of one of 1 rank: open its folder for whole tensors)
ranks (torch.save of DTensors on 1 rank): 1 tensor in 1 chunk, 2 parameters, 8 B; 0 objects
END

t 'flat shards of an optimizer are left out by name' -c '"$R" inspect golden/folders/rank_flat | grep "^optim.state" | cut -d" " -f1; "$R" convert -q golden/folders/rank_flat "$T/flat.pt"'
out <<'END'
optim.state.0.step
END
err <<'END'
reshard: left out: optim.state.0.exp_avg, optim.state.0.exp_avg_sq: each rank has a flat shard (FSDP1), without names and shapes of parameters: save FSDP.optim_state_dict(model, optimizer) instead
reshard: left out: extra_state.rng.cpu, extra_state.rng.python: other ranks have different ones: the lowest rank's is kept
reshard: left out: _metadata: an attribute of a dict or a tensor: only items and elements are copied
END

t 'random states and objects that differ are no damage' verify golden/folders/rank_flat
out <<'END'
note: optim.state.0.exp_avg, optim.state.0.exp_avg_sq: each rank has a flat shard (FSDP1), without names and shapes of parameters: save FSDP.optim_state_dict(model, optimizer) instead
note: extra_state.rng.cpu, extra_state.rng.python: other ranks have different ones: the lowest rank's is kept
ok: ranks, 3 tensors, 66 B, 4 objects
END

t 'notes as JSON' -c '"$R" verify --json golden/folders/rank_flat | sed -n "/notes/,/]/p" | tail -n 3'
out <<'END'
    {"name": "extra_state.rng.cpu", "note": "other ranks have different ones: the lowest rank's is kept"},
    {"name": "extra_state.rng.python", "note": "other ranks have different ones: the lowest rank's is kept"}
  ],
END

t 'a plain tensor of another shape on another rank is left out by name' verify bad/ranks/plain_of_other_shape
out <<'END'
note: v: its dtype or shape differs between ranks, and no file says how these make a whole
ok: ranks, 1 tensor, 16 B, 0 objects
END

if ! mkdir "$T/differing" || ! python3 bad_ranks.py "$T/differing" 2>/dev/null; then
    skip 'replicas that differ' 'no python3'
    finish
fi

t 'the lowest rank is loaded' -c '"$R" cat --format text "$T/differing" w; "$R" cat "$T/differing" step'
out <<'END'
1 2
1
END

t 'verify reports replicas that differ' -c '"$R" verify "$T/differing"'
out <<'END'
damage: replicas of "w" differ: that of file "rank_0.pt" is loaded, file "rank_1.pt" has another
damage: replicas of "v" differ: that of file "rank_0.pt" is loaded, file "rank_1.pt" has another
note: step: other ranks have different ones: the lowest rank's is kept
2 damages
END
code 1

t 'a conversion says whose replica it took' -c '"$R" convert -q "$T/differing" "$T/differing.pt"'
err <<'END'
reshard: left out: step, w, v: other ranks have different ones: the lowest rank's is kept
END

t 'experts that the ranks of DeepSpeed divide are read' -c '"$R" inspect golden/folders/zero2_experts | tail -n 1'
out <<'END'
zero (DeepSpeed 0.19.8 ZeRO stage 1 or 2 on 4 ranks): 28 tensors in 55 chunks, 205 parameters, 820 B; 56 objects
END

t 'a whole nn.Module tells what it hides' -c '"$R" inspect golden/folders/module.pt | tail -n 2'
out <<'END'
torch: 0 tensors in 0 chunks, 0 parameters, 0 B; 2 objects
2 storages with 32 B inside objects of unknown classes: to get their tensors, load them in Python and save the state_dict
END

finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# diff takes the filters, names and dtypes of a conversion, so that what it wrote can be checked.
. "$(dirname "$0")/../cli/expect.sh"

"$R" convert -q golden/training.pt "$T/model.safetensors" --include 'model.*' --rename 's/^model\.//' --dtype bf16 2>/dev/null
t 'the options of the conversion are those of the check' diff golden/training.pt "$T/model.safetensors" --include 'model.*' --rename 's/^model\.//' --cast
out <<'END'
same: 2 tensors, 112 B, 0 objects
END

t 'without --cast another dtype is a difference' -c '"$R" diff golden/training.pt "$T/model.safetensors" --include "model.*" --rename "s/^model\.//" | tail -n 1'
out <<'END'
2 differences
END

head='{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}'
st "$T/f32" "$head" '\0\0\200\077\1\0\200\077\0\0\0\100' # 1, the next after 1, 2
head='{"w":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}}'
st "$T/bf16" "$head" '\200\077\200\077\0\100' # 1 1 2
st "$T/off" "$head" '\200\077\201\077\0\100' # 1 1.0078125 2
t 'what is cast is compared bit by bit' diff --cast "$T/f32" "$T/bf16"
out <<'END'
same: 1 tensor, 6 B, 0 objects
END

t 'and what a cast would not give differs' diff --cast "$T/f32" "$T/off"
code 1
out <<'END'
w: 1 of 3 elements differ, first at [1]: 1 and 1.0078125; largest difference 0.0078125
1 difference
END

t 'unless it is near enough' diff --cast --rtol 0.01 "$T/f32" "$T/off"
out <<'END'
same: 1 tensor, 6 B, 0 objects
END

t 'from the narrow to the wide' diff --cast --rtol 1e-6 "$T/bf16" "$T/f32"
out <<'END'
same: 1 tensor, 12 B, 0 objects
END

t 'what is left out is not missed' diff golden/dcp_blocks golden/hf_parts --include blocks --include strided
out <<'END'
same: 2 tensors, 240 B, 0 objects
END

t 'a pattern that matches nothing is a mistake, and the nearest name is told' diff golden/dcp_blocks golden/dcp_blocks --exclude 'nestd' --rename 's/^stride_/x/'
err <<'END'
reshard: warning: --rename "s/^stride_/x/" matches nothing; the closest name is "strided"
reshard: warning: --exclude "nestd" matches nothing; the closest name is "nested"
END
out <<'END'
same: 3 tensors, 360 B, 0 objects
END

for to in 's/^(row|uneven)$/one/' 's/^uneven$/row/' 's/^column$/row/' 's/^row$//'; do
    export to
    t "what convert refuses to rename is refused: $to" -c 'cd golden; "$R" convert dcp_rows "$T/one" --rename "$to" 2>"$T/said"; echo $?
    "$R" diff --json dcp_rows dcp_rows --rename "$to" 2>"$T/said2"; echo $?; sed "s/checkpoint .*one\": \(tensor[^:]* source: \)*//" "$T/said" | diff - "$T/said2" && grep -c "given twice\|renamed to an empty name" "$T/said2"'
    out <<'END'
2
2
1
END
done

t 'nothing to compare is not the same' diff golden/dcp_blocks golden/dcp_blocks --exclude '*'
code 2
err <<'END'
reshard: the patterns leave nothing to compare
try: reshard help diff
END

finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# diff says "same" only of what it compared: objects of unknown classes, tensors inside objects, dicts without names, and
# what one format keeps whole and the other in parts.
. "$(dirname "$0")/../cli/expect.sh"

# put FILE BYTE TEXT
put()
{
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

t 'a file is the same as itself, with all its objects' diff seams/objects.pt seams/objects.pt
out <<'END'
same: 3 tensors, 68 B, 5 objects
END

cp seams/objects.pt "$T/opaque.pt"
put "$T/opaque.pt" 1282 '\5' # "data/1", inside the object of an unknown class
t 'a tensor inside an object of an unknown class is compared' diff seams/objects.pt "$T/opaque.pt"
code 1
out <<'END'
object thing: <types.SimpleNamespace>, with other contents
1 difference
END

cp seams/objects.pt "$T/pairs.pt"
put "$T/pairs.pt" 1412 '\5' # "data/2", in the dict with tuples for keys
t 'and so is one in a dict with tuples for keys, which is opened' diff seams/objects.pt "$T/pairs.pt"
code 1
out <<'END'
pairs.of.(0, 1): 1 of 3 elements differ, first at [1]: 1 and 5; largest difference 4
1 difference
END

t 'what prints alike is compared by what is in it' diff seams/objects.pt seams/others.pt
code 1
out <<'END'
pairs.of.(0, 1): 3 of 3 elements differ, first at [0]: 0 and 1; largest difference 1
object thing: <types.SimpleNamespace>, with other contents
2 differences
END

t 'what torch.save has under several names DCP keeps as one object, which is the same' diff seams/objects.pt seams/objects_dcp --exclude 'pairs.*'
out <<'END'
same: 2 tensors, 56 B, 4 objects
END

t 'the same the other way round' diff seams/objects_dcp seams/objects.pt --exclude 'pairs.*'
out <<'END'
same: 1 tensor, 56 B, 4 objects
END

cp seams/objects.pt "$T/both.pt"
at=$(grep -obUaP '\x02\x00{7}\x03\x00{7}' "$T/both.pt" | head -n 1 | cut -d: -f1)
put "$T/both.pt" "$at" '\11' # an element of both.0
t 'a tensor that is inside an object on one side only is compared with its elements' diff "$T/both.pt" seams/objects_dcp --exclude 'pairs.*'
code 1
out <<'END'
both.0: 1 of 5 elements differ, first at [2]: 9 and 2; largest difference 7
1 difference
END

t 'names only: the parts of an object are its names' diff --names-only seams/objects.pt seams/objects_dcp
code 1
out <<'END'
pairs.of.(0, 1): only in A
object pairs.of.(2, 3): only in A
2 differences
END

"$R" convert -q seams/objects.pt "$T/st.safetensors" 2>/dev/null
t 'objects that the other format can not hold are not the same' diff seams/objects.pt "$T/st.safetensors"
code 5
out <<'END'
no difference in 3 tensors, 68 B, 0 objects
not compared: both.1.rate, both.1.text, pairs.of.(2, 3), step, thing: safetensors can't hold objects
END

t 'and neither in JSON' -c '"$R" diff --json seams/objects.pt "$T/st.safetensors" | tail -n +4'
out <<'END'
  "differences": [],
  "not_compared": [
    {"name": "both.1.rate", "why": "safetensors can't hold objects"},
    {"name": "both.1.text", "why": "safetensors can't hold objects"},
    {"name": "pairs.of.(2, 3)", "why": "safetensors can't hold objects"},
    {"name": "step", "why": "safetensors can't hold objects"},
    {"name": "thing", "why": "safetensors can't hold objects"}
  ],
  "same": false
}
END

t 'a correct conversion has no differences' -c 'for to in out.pt out; do "$R" convert -q seams/objects_dcp "$T/$to" 2>/dev/null; "$R" diff seams/objects_dcp "$T/$to" --exclude thing; done'
out <<'END'
same: 1 tensor, 56 B, 3 objects
same: 1 tensor, 16 B, 2 objects
END

finish

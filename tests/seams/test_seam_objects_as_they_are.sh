#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Objects of unknown classes are copied from DCP to DCP as they are, and a copy that changes the class of a dict says so.
. "$(dirname "$0")/../cli/expect.sh"

t "unknown classes are copied from DCP to DCP" -c '"$R" convert -q golden/dcp_unknown_objects "$T/copy" --to dcp &&
    "$R" diff -q golden/dcp_unknown_objects "$T/copy" && "$R" inspect "$T/copy"'
out <<'END'
object    value
fraction  fractions.Fraction(1, 3)
inside    [1, fractions.Fraction(2, 3)]

dcp: 0 tensors in 0 chunks, 0 parameters, 0 B; 2 objects
END

t "the copy is whole" verify -q "$T/copy"

t "also compressed" -c '"$R" convert -q golden/dcp_unknown_objects "$T/zstd" --to dcp --compress zstd &&
    "$R" diff -q golden/dcp_unknown_objects "$T/zstd" && "$R" verify -q "$T/zstd"'

t "unknown classes are copied into torch.save and from it" -c '"$R" convert -q golden/dcp_unknown_objects "$T/one.pt" &&
    "$R" convert -q "$T/one.pt" "$T/two.pt" && "$R" diff -q golden/dcp_unknown_objects "$T/two.pt" && cmp "$T/one.pt" "$T/two.pt"'

t "keys that are neither text nor numbers are copied as they are" -c '"$R" convert -q seams/objects.pt "$T/keys.pt" 2>/dev/null;
    grep -qF "(0, 1)" "$T/keys.pt" || "$R" cat "$T/keys.pt" "pairs.of.(2, 3)"'
out <<'END'
'seven'
END

t "a Counter without tensors keeps its class, a defaultdict with some becomes a dict and is told" -c '
    "$R" convert -q golden/folders/hidden.pt "$T/plain.pt" 2>&1 | grep collections; grep -aoE "defaultdict|Counter" "$T/plain.pt"'
out <<'END'
reshard: left out: collections.defaultdict: the class of a dict: it is copied as a plain one
Counter
END

t "its items have the names they had" -c '"$R" diff golden/folders/hidden.pt "$T/plain.pt" && "$R" convert -q "$T/plain.pt" "$T/again.pt" && cmp "$T/plain.pt" "$T/again.pt"'
out <<'END'
same: 12 tensors, 92 B, 4 objects
END

t "where its items are stored one by one, both become dicts and are told" -c '"$R" convert -q golden/folders/hidden.pt "$T/split" --to dcp 2>&1 | grep collections'
out <<'END'
reshard: left out: collections.defaultdict, collections.Counter: the class of a dict: it is copied as a plain one
END

t "also if a filter or a new name asks for some of its items" -c '
    "$R" convert -q golden/folders/hidden.pt "$T/some.pt" --exclude "counter.b" 2>&1 | grep collections; "$R" convert -q golden/folders/hidden.pt "$T/named.pt" --rename "s/^counter/c/" 2>&1 | grep collections'
out <<'END'
reshard: left out: collections.defaultdict, collections.Counter: the class of a dict: it is copied as a plain one
reshard: left out: collections.defaultdict, collections.Counter: the class of a dict: it is copied as a plain one
END

t "the file of one rank says so" -c '"$R" inspect --json golden/matrix/torch-2.13/rank_files/*0.pt | grep -o "the file of one of 4 ranks.*tensors"'
out <<'END'
the file of one of 4 ranks: open its folder for whole tensors
END

mkdir "$T/vllm"
for rank in 0 1; do
    st "$T/vllm/model-rank-$rank-part-0.safetensors" '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' xy
done
t "the parts of several tensor-parallel ranks can't be joined" -c '"$R" inspect "$T/vllm" 2>&1 | grep -o "sharded_state of 2 tensor-parallel ranks"'
out <<'END'
sharded_state of 2 tensor-parallel ranks
END

rm "$T/vllm/model-rank-1-part-0.safetensors"
t "one rank's are read" -c '"$R" inspect "$T/vllm" | tail -1'
out <<'END'
safetensors (vLLM sharded_state): 1 tensor in 1 chunk, 2 parameters, 2 B; 0 objects
END

finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# convert carries along what the target can hold (metadata, files beside the checkpoint) and says what it leaves out, also
# when quiet.
. "$(dirname "$0")/../cli/expect.sh"

t 'tensors inside objects are not lost in silence' convert -q seams/objects_dcp "$T/objects.safetensors"
err <<'END'
reshard: left out: thing, both: safetensors hold no objects, and these have tensors inside
reshard: left out: step: safetensors hold no objects
END

t 'an object of an unknown class is not lost in silence' -c '"$R" convert -q seams/objects_dcp "$T/objects.pt"; "$R" inspect "$T/objects.pt" | grep thing'
code 1
err <<'END'
reshard: left out: thing: an object of the class types.SimpleNamespace can't be written
END

# ---- __metadata__ ----

head='{"__metadata__":{"format":"pt","author":"A","n":"1"},"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
mkdir "$T/st"
st "$T/st/one.safetensors" "$head" '\1\2'
t 'metadata of safetensors are shown' inspect "$T/st/one.safetensors"
out <<'END'
name  dtype  shape  layout  chunks  bytes
v     uint8  [2]    whole        1    2 B

metadata  value
format    pt
author    A
n         1

safetensors: 1 tensor in 1 chunk, 2 parameters, 2 B; 0 objects
END

t 'also as JSON' -c '"$R" inspect --json "$T/st/one.safetensors" | tail -n 7'
out <<'END'
  "metadata": {
    "format": "pt",
    "author": "A",
    "n": "1"
  },
  "objects": []
}
END

t 'and go along' -c '"$R" convert -q "$T/st/one.safetensors" "$T/st1.safetensors" && "$R" diff "$T/st/one.safetensors" "$T/st1.safetensors"'
out <<'END'
same: 1 tensor, 2 B, 0 objects
END

head='{"__metadata__":{"format":"pt","author":"B","m":"2"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
st "$T/st/two.safetensors" "$head" '\1\2'
t 'of several files those of all go along, and where they disagree that is said' -c '"$R" convert -q "$T/st" "$T/st2" --to safetensors; "$R" inspect "$T/st2" | sed -n 5,9p'
err <<'END'
reshard: left out: __metadata__.author: other files of the source have other values; the first is used
END
out <<'END'
metadata  value
author    A
format    pt
m         2
n         1
END

t 'a format that has none is told' convert -q "$T/st/one.safetensors" "$T/dcp"
err <<'END'
reshard: left out: __metadata__: only safetensors have it
END

t 'metadata are compared' diff "$T/st/one.safetensors" "$T/st/two.safetensors" --rename 's/^v$/w/'
code 1
out <<'END'
object __metadata__.author: A and B
object __metadata__.n: only in A
object __metadata__.m: only in B
3 differences
END

t 'metadata that the other format can not hold are not the same' diff "$T/st/one.safetensors" "$T/dcp"
code 5
out <<'END'
no difference in 1 tensor, 2 B, 0 objects
not compared: __metadata__.author, __metadata__.n: only safetensors have __metadata__
END

# ---- files beside ----

cp -r golden/hf_index "$T/hf"
printf '{"hidden_size": 4}' >"$T/hf/config.json"
head -c 5000000 /dev/zero >"$T/hf/tokenizer.model"
: >"$T/hf/empty.txt"
mkdir "$T/hf/.cache"
ln -s /etc/passwd "$T/hf/link"
truncate -s 65M "$T/hf/large.dat"
echo '{}' >"$T/hf/pytorch_model.bin.index.json"
echo pickle >"$T/hf/optimizer.bin"
t 'files beside the checkpoint go along from folder to folder, the others are named' -c 'cd "$T"; "$R" convert -q hf hf2 --to safetensors; ls -A hf2; cmp hf/tokenizer.model hf2/tokenizer.model && cmp hf/config.json hf2/config.json && "$R" verify hf2'
out <<'END'
.reshard-sums
config.json
empty.txt
model.safetensors
tokenizer.model
ok: safetensors, 44 tensors, 1.0 KiB, 0 objects
END
err <<'END'
reshard: left out: .cache: folders beside a checkpoint are not copied
reshard: left out: large.dat: files of more than 64 MiB beside a checkpoint are not copied
reshard: left out: link: links and devices are not copied
reshard: left out: optimizer.bin: pickles are not copied to safetensors
reshard: left out: pytorch_model.bin.index.json: not part of this checkpoint
END

t 'they are listed with the checksums: damage is found, and overwriting knows them' -c 'cd "$T"; printf X | dd of=hf2/config.json bs=1 conv=notrunc 2>/dev/null; "$R" verify hf2; "$R" convert -q hf hf2 --to safetensors --overwrite 2>/dev/null && cmp hf/config.json hf2/config.json'
out <<'END'
damage: file "config.json": checksum mismatch in bytes 0-17: not part of the checkpoint
1 damage
END

t 'compressed, they stay as they are' -c 'cd "$T"; "$R" convert -q hf hfz --compress zstd 2>/dev/null; cmp hf/tokenizer.model hfz/tokenizer.model && cmp hf/optimizer.bin hfz/optimizer.bin && "$R" verify -q hfz'

t 'one file holds no others' -c 'cd "$T"; "$R" convert -q hf hf.pt'
err <<'END'
reshard: left out: .cache, config.json, empty.txt, large.dat, link and 3 more: a single file holds no others
END

t '--no-carry leaves them' -c 'cd "$T"; "$R" convert -q --no-carry hf hf3; ls hf3'
out <<'END'
__0_0.distcp
END

# As in Hugging Face's cache: every file is a link.
mkdir "$T/blobs" "$T/cache"
mv "$T/st1.safetensors" "$T/blobs/aa"
printf '{"a": 1}' >"$T/blobs/bb"
ln -s ../blobs/aa "$T/cache/model.safetensors"
ln -s ../blobs/bb "$T/cache/config.json"
t 'links are followed where the checkpoint is made of links' -c 'cd "$T"; "$R" convert -q cache out --to safetensors; cmp blobs/bb out/config.json'

cp -r golden/dcp_rows "$T/rows"
cp golden/objects.pt "$T/rows/meta.pt"
t 'a meta.pt goes along with DCP' -c 'cd "$T"; "$R" convert -q rows rows2; cmp rows/meta.pt rows2/meta.pt'

# As torch's state_dict: a dict with an attribute.
if ! python3 - "$T/module.pt" 2>/dev/null <<'END'; then
import collections, pickle, sys, zipfile
inner = collections.OrderedDict(step=7)
inner._metadata = {"": {"version": 2}}
outer = collections.OrderedDict(model=inner, plain=collections.OrderedDict(a=1), note="hello")
outer._metadata = outer.other = {}
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("a/data.pkl", pickle.dumps(outer, protocol=2))
    z.writestr("a/byteorder", "little")
    z.writestr("a/version", "3\n")
END
    skip 'attributes of dicts are named once' 'no python3'
else
    t 'attributes of dicts are named once' -c 'cd "$T"; "$R" convert -q module.pt module2.pt; "$R" convert -q module.pt module; "$R" convert -q module2.pt module3.pt; "$R" diff module.pt module2.pt'
    out <<'END'
same: 0 tensors, 0 B, 3 objects
END
    err <<'END'
reshard: left out: _metadata, other: an attribute of a dict or a tensor: only items and elements are copied
reshard: left out: _metadata, other: an attribute of a dict or a tensor: only items and elements are copied
END
fi

finish

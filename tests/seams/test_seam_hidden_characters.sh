#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names that would turn the text around them, or hide in it, are spelled out like control characters.
. "$(dirname "$0")/../cli/expect.sh"

# U+202E turns what follows, U+200B and U+E0041 can't be seen, U+2028 ends a line, 0x9b alone starts commands of old terminals
evil=$(printf 'a\342\200\256b\342\200\213c\363\240\201\201d\342\200\250e')
st "$T/evil.safetensors" '{"'"$evil"'":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 'x'

t 'in tables' -c '"$R" inspect "$T/evil.safetensors" | sed -n 2p | cut -d" " -f1'
out <<'END'
a\u202eb\u200bc\U000e0041d\u2028e
END

t 'in pictures' -c '"$R" inspect --picture "a*" "$T/evil.safetensors" | head -n 1 | cut -d" " -f1'
out <<'END'
a\u202eb\u200bc\U000e0041d\u2028e
END

t 'in JSON, which stays what it was' -c '"$R" inspect --json "$T/evil.safetensors" >"$T/json" && python3 -c "
import json, sys
text = open(sys.argv[1]).read()
print(ascii(json.loads(text)[\"tensors\"][0][\"name\"]), text.isascii())" "$T/json"'
out <<'END'
'a\u202eb\u200bc\U000e0041d\u2028e' True
END

t 'in messages' -c '"$R" cat "$T/evil.safetensors" "$(printf "x\342\200\256\233")" 2>&1 | sed "s/.*called//"'
out <<'END'
 "x\u202e\x9b"
END

t 'in the library'"'"'s messages' -c '"$R" inspect "$(printf "no\342\200\256such")" 2>&1 | grep -c "$(printf "\342\200\256")"'
out <<'END'
0
END
code 1

# text of an object: torch.save({'t': 'x\u202ey'}), by hand
t 'in text of objects' -c 'python3 -c "
import pickle, sys, zipfile
with zipfile.ZipFile(sys.argv[1], \"w\") as z:
    z.writestr(\"a/data.pkl\", pickle.dumps({\"t\": \"x\u202ey\"}, 2))
    z.writestr(\"a/byteorder\", \"little\")
    z.writestr(\"a/version\", \"3\n\")" "$T/o.pt" && "$R" cat "$T/o.pt" t'
out <<'END'
'x\u202ey'
END

t 'on the page, once it is in the browser' -c '"$R" inspect --html "$T/p.html" "$T/evil.safetensors" >/dev/null && grep -c "$(printf "\342\200\256")" "$T/p.html"'
out <<'END'
0
END
code 1

# {"o": an object of the class "C\x1b[31m" of "m\x1b[31m"}, with and without fields
cat >"$T/objects.py" <<'END'
import sys, zipfile

def text(s):
    return b"\x8c" + bytes([len(s)]) + s.encode()

for state in "", "b":
    new = text("m\33[31m") + text("C\33[31m") + b"\x93)\x81" + (b"}" + text("f\33") + b"K\1sb" if state else b"")
    with zipfile.ZipFile(f"{sys.argv[1]}{state}.pt", "w") as out:
        out.writestr("a/data.pkl", b"\x80\4}" + text("o") + new + b"s.")
        out.writestr("a/version", "3\n")
END
python3 "$T/objects.py" "$T/object"
t 'in names of classes' -c '"$R" cat "$T/object.pt" o && "$R" cat "$T/objectb.pt" o'
out <<'END'
m\x1b[31m.C\x1b[31m()
m\x1b[31m.C\x1b[31m('f\x1b'=1)
END

# DeepSpeed's version and Megatron's form of the optimizer's state are texts of the file
cat >"$T/rewrite.py" <<'END'
import pathlib, sys, zipfile

for path in pathlib.Path(sys.argv[1]).rglob("*.pt"):
    with zipfile.ZipFile(path) as old:
        records = [(i.filename, old.read(i)) for i in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        for name, data in records:
            new.writestr(name, data.replace(b"0.19.8", b"\33[31m!").replace(b"dp_reshardable", b"\33[31m_hardable"))
END
cp -r golden/folders/zero3 "$T/zero"
cp -r golden/megatron/dp_reshardable "$T/megatron"
t 'in what a folder says of itself' -c 'for f in zero megatron; do
    python3 "$T/rewrite.py" "$T/$f"
    "$R" inspect "$T/$f" >"$T/said" && tail -n 1 "$T/said" | sed "s/): .*//" | tr "\033" E
done'
out <<'END'
zero (DeepSpeed ZeRO stage 3 on 2 ranks
dcp (Megatron-Core torch_dist, iteration 7
END

finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard inspect --html, plan --html: the file and what is in it; tests/browser looks at it as people do.
. "$(dirname "$0")/expect.sh"

# The data of a page on one line.
data='sed -n "/id=.data./,/<.script>/p" | grep -v script | tr -d " \n"; echo'

t 'the page has each tensor, each tiling once, and the bytes of each file' -c "\"\$R\" inspect golden/dcp_blocks nested blocks --html - | $data"
out <<'END'
{"kind":"inspect","path":"golden/dcp_blocks","format":"dcp","tensors":[["blocks","float32",[8,6],192,4,0,-1],["nested","float32",[10,3],120,4,1,-1]],"objects":[],"tilings":[{"n":4,"t":[0,0,0,4,3,1,0,3,4,3,2,4,0,4,3,3,4,3,4,3]},{"n":4,"t":[0,0,0,3,3,1,3,0,2,3,2,5,0,3,3,3,8,0,2,3]}],"files":[["__0_0.distcp",0,84],["__1_0.distcp",1,72],["__2_0.distcp",2,84],["__3_0.distcp",3,72]],"ranks":[]}
END

st "$T/two.safetensors" '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}' 'abcd'

t 'a plan has tiles after too, and what each rank needs and reads' -c "\"\$R\" plan \"\$T/two.safetensors\" -l 'mesh a=2; * shard(0)@a' --html - | { $data; } | sed 's/.*\"rules\"/\"rules\"/'"
out <<'END'
"rules":"mesha=2\u000a*shard(0)@a\u000a","tensors":[["a","uint8",[2],2,1,0,1],["b","uint8",[2],2,1,0,1]],"objects":[],"tilings":[{"n":1,"t":[0,0,2]},{"n":2,"t":[0,0,1,1,1,1]}],"files":[["two.safetensors",-1,4]],"ranks":[[2,2,-1,-1,-1],[2,2,-1,-1,-1]]}
END

t 'objects are on it as Python prints them, those that were asked for' -c "\"\$R\" inspect golden/training.pt '*.betas' step --html - | { $data; } | sed 's/.*\"objects\"/\"objects\"/; s/,\"tilings.*//'"
out <<'END'
"objects":[["optim.param_groups.0.betas","(0.9,0.999)"],["step","1000"]]
END

st "$T/evil.safetensors" '{"</script><b>&":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 'a'

t 'a name can not end the script it stands in' -c '"$R" inspect "$T/evil.safetensors" --html - | grep -c "<b>"
    "$R" inspect "$T/evil.safetensors" --html - | grep -o ".u003c.*u0026"'
out <<'END'
0
\u003c/script\u003e\u003cb\u003e\u0026
END

t 'the page names nothing on the network' -c '"$R" inspect golden/dcp_blocks --html - | grep -E "(https?:)?//[a-z]" | grep -v "^//\|www.w3.org/2000/svg"'
code 1

t 'a file is there whole and nothing else is left' -c 'cd "$T" && umask 027 && "$R" inspect evil.safetensors --html page.html && ls page* && tail -n 1 page.html && stat -c %a page.html'
out <<'END'
page.html
</html>
640
END

t 'a file that is there is replaced' -c 'echo old >"$T/again.html" && "$R" inspect golden/dcp_blocks --html "$T/again.html" && head -n 1 "$T/again.html"'
out <<'END'
<!DOCTYPE html>
END

t 'a device is written to, not replaced' -c '"$R" inspect golden/dcp_blocks --html /dev/null && test -c /dev/null'

t 'a file that can not be made ends in 3' inspect golden/dcp_blocks --html none/page.html
err <<'END'
reshard: could not write "none/page.html": No such file or directory
END
code 3

t 'a full disk ends in 3' -c '"$R" inspect golden/dcp_blocks --html /dev/full'
err <<'END'
reshard: could not write "/dev/full": the disk is full or broken
END
code 3

t 'a pattern that matches nothing leaves no file' -c '"$R" inspect golden/dcp_blocks none --html "$T/none.html" || test ! -e "$T/none.html"'
err <<'END'
reshard: nothing in "golden/dcp_blocks" is called "none"
END

t 'a page is no JSON' plan golden/dcp_blocks -l 'mesh a=2; * replicate' --json --html -
err <<'END'
reshard: --json and --html can't be combined
try: reshard help plan
END
code 2

finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard demo
. "$(dirname "$0")/expect.sh"

t 'the tour shows each command and what it finds' -c '"$R" demo --dir "$T/tour" 2>/dev/null | sed "s|$T|/tmp|" | grep -E "^[$]|^same|^ok|^damage|browser: "'
out <<'END'
$ cd /tmp/tour
$ reshard inspect eight
$ reshard inspect eight --picture model.embed.weight
$ reshard plan eight --layout 'mesh tp=3; *norm* replicate; * shard(1)@tp'
$ reshard convert eight three --layout 'mesh tp=3; *norm* replicate; * shard(1)@tp'
$ reshard inspect three --picture model.embed.weight
$ reshard convert eight model.safetensors
$ reshard diff eight three
same: 3 tensors, 3.1 KiB, 1 object
$ reshard diff three model.safetensors --exclude step
same: 3 tensors, 3.1 KiB, 0 objects
$ reshard verify three
ok: dcp, 3 tensors, 3.1 KiB, 1 object
$ reshard verify three
damage: file "__1_0.distcp": checksum mismatch in bytes 2089-4264: tensor "model.mlp.weight" [0:24, 6:12]
damaged: model.mlp.weight
$ reshard plan eight --layout 'mesh tp=3; *norm* replicate; * shard(1)@tp' --html page.html
# Open it in a browser: /tmp/tour/page.html
END

t 'what the tour leaves is whole' -c 'cd "$T/tour" && ls && "$R" verify three && "$R" cat eight model.embed.weight --slice 11 --format text'
out <<'END'
eight
model.safetensors
model.safetensors.reshard-sums
page.html
three
ok: dcp, 3 tensors, 3.1 KiB, 1 object
352 353 354 355 356 357 358 359 360 361 362 363 364 365 366 367 368 369 370 371 372 373 374 375 376 377 378 379 380 381 382 383
END

t 'a folder that is there is left alone' -c 'mkdir "$T/there" && cd "$T" && "$R" demo --dir there'
err <<'END'
reshard: could not create "there": File exists
END
code 3

t 'off a terminal the tour is plain text' -c '"$R" demo --dir "$T/plain" 2>&1 | grep -c "$(printf "\033")"'
out <<'END'
0
END
code 1

finish

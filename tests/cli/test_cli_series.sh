#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard series: which step is the latest, what is removed
. "$(dirname "$0")/expect.sh"

for n in 10 20 30 40; do cp -r golden/dcp_rows "$T/step-$n"; done
mkdir "$T/step-50" "$T/best"

t 'steps are listed in order, and whether they are complete' -c 'cd "$T"; "$R" series . | tr "\t" " "'
out <<'END'
10 complete step-10
20 complete step-20
30 complete step-30
40 complete step-40
50 incomplete step-50
END

t 'the latest complete one is named' -c 'cd "$T"; "$R" series . --latest'
out <<'END'
./step-40
END

t 'a dry run removes nothing' -c 'cd "$T"; "$R" series . --keep 1 --every 20 --dry-run; ls -d step-10'
out <<'END'
would remove step-30
would remove step-10
step-10
END

t 'the last one and every 20th stay, and so does what is incomplete' -c 'cd "$T"; "$R" series . --keep 1 --every 20; ls -A'
out <<'END'
removed step-30
removed step-10
best
step-20
step-40
step-50
END

t 'a folder that does not exist is not an empty one' -c 'cd "$T"; "$R" series nowhere'
code 3
err <<'END'
reshard: could not open "nowhere": No such file or directory
END

t 'nor is a file' -c 'cd "$T"; : >file; "$R" series file'
code 3
err <<'END'
reshard: could not open "file": Not a directory
END

t 'what only prints and what removes exclude each other' -c 'cd "$T"; "$R" series . --latest --keep 1 2>/dev/null || "$R" series . | wc -l'
out <<'END'
3
END

t 'keeping none is misuse' -c 'cd "$T"; "$R" series . --keep 0'
code 2
err <<'END'
reshard: --keep "0": at least one checkpoint has to stay
try: reshard help series
END

t 'a folder without checkpoints has no latest one' -c 'cd "$T"; "$R" series best --latest'
code 3
err <<'END'
reshard: series "best" has no complete checkpoint
END

t 'a dry run of nothing is misuse' series golden --dry-run
code 2
err <<'END'
reshard: --every and --dry-run need --keep
try: reshard help series
END

finish

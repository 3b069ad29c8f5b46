#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which libraries a build folder is configured for, with a Meson and a pkg-config that are made up.
. "$(dirname "$0")/../cli/expect.sh"

mkdir -p "$T/tools" "$T/bin" "$T/build"
cp ../../tools/configure ../../tools/with-deps "$T/tools"
cat >"$T/bin/meson" <<'END'
#!/bin/sh
echo "meson $*" >>said
[ ! -e broken ] && touch build/build.ninja
END
cat >"$T/bin/pkg-config" <<'END'
#!/bin/sh
grep -qx -e "$2" installed
END
chmod +x "$T/bin/meson" "$T/bin/pkg-config"
PATH=$T/bin:$PATH
cd "$T" || exit 1
echo libzstd >installed

t 'a build folder is set up once' -c 'tools/configure build -Da=b && tools/configure build -Da=b && cat said'
out <<'END'
setup: configuring build
meson setup build -Da=b
END

t 'it is set up again when a library was installed' -c '
    echo ompi-c >>installed
    tools/configure build && tools/configure build && tail -n 1 said'
out <<'END'
setup: configuring build
meson setup --reconfigure build
END

t 'a setup that fails is tried again' -c '
    echo ucx >>installed && touch broken
    tools/configure build
    rm broken && tools/configure build && tail -n 1 said'
out <<'END'
setup: configuring build
setup: configuring build
meson setup --reconfigure build
END

finish

#!/usr/bin/env bash
# Writes THIRD_PARTY_NOTICES from deps.lock and the licence files in the locked archives.
#
#   toolchains/make_notices.sh            write it (fetches the archives if they are not cached)
#   toolchains/make_notices.sh --check    only say whether it belongs to the present lock; reads no archive, needs no network
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/deps_common.sh"

NOTICES=$(dirname "$TOOLCHAINS_DIR")/THIRD_PARTY_NOTICES
WORK=''

cleanup() { [[ -z $WORK ]] || rm -rf "$WORK"; }
trap cleanup EXIT

# The line that ties the file to a lock.
lock_line() { echo "Lock: $(lock_entries | sha256sum | cut -d' ' -f1)"; }

# Licence files of an unpacked archive, the first one of each pattern that exists.
licence_files() {
  local dir=$1 file
  for file in "$dir"/LICENSE "$dir"/LICENSE.txt "$dir"/LICENSE.md "$dir"/LICENSE.MIT "$dir"/LICENCE.md \
    "$dir"/usr/share/doc/*/copyright; do
    [[ ! -f $file ]] || echo "$file"
  done
}

write_notice() {
  local name=$1 file files first
  unpack "$name" "$WORK/$name"
  files=$(licence_files "$WORK/$name")
  [[ -n $files ]] || fail "$(lock_file "$name") ($name): expected a licence file at its top, found none"
  printf '\n%s\n%s %s, %s\n%s\n\n' "$RULE" "$name" "$(lock_version "$name")" "$(lock_licence "$name")" "$RULE"
  while read -r file; do
    # One text that several share (the Apache licence) is printed once.
    first=$WORK/text.$(sha256_of "$file")
    if [[ -f $first ]]; then
      echo "The same text as for $(cat "$first")."
    else
      echo "$name" > "$first"
      sed 's/[[:space:]]*$//' "$file"
    fi
  done <<< "$files"
}

write_notices() {
  local name
  cat <<EOF
Linnet is made with the work of others. This file has the licences of what is compiled into its programs (doctest: only
into its tests). Made by toolchains/make_notices.sh; do not edit.
$(lock_line)

Statically linked programs also hold parts of the building machine's C and C++ libraries, which come with its compiler:
the GNU C Library (LGPL-2.1-or-later), libstdc++ and libgcc (GPL-3.0-or-later with the GCC Runtime Library Exception); for
Android LLVM's libc++ (Apache-2.0 with LLVM Exceptions). Whoever wants another version of them builds the program again
from this source: cmake --preset TARGET && cmake --build --preset TARGET.
EOF
  for name in $(lock_entries | awk '{ print $1 }'); do write_notice "$name"; done
}

check() {
  local found
  found=$(grep -m1 '^Lock: ' "$NOTICES" 2> /dev/null || echo nothing)
  [[ $found == "$(lock_line)" ]] ||
    fail "$NOTICES: expected '$(lock_line)' as in $LOCK_FILE, found '$found'; run toolchains/make_notices.sh"
}

RULE=$(printf '%.0s=' {1..100})
case ${1:-} in
  --check) check ;;
  "")
    "$TOOLCHAINS_DIR/fetch_deps.sh"
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/linnet-notices.XXXXXX")
    write_notices > "$WORK/NOTICES"
    mv "$WORK/NOTICES" "$NOTICES"
    ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

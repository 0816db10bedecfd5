# shellcheck shell=bash
# Shared by the scripts of this folder; sourced, never run. The caller has set `set -euo pipefail`.

TOOLCHAINS_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LOCK_FILE=$TOOLCHAINS_DIR/deps.lock
# Some services run with no HOME.
USER_HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
DEPS_CACHE=${LINNET_DEPS_CACHE:-${XDG_CACHE_HOME:-$USER_HOME/.cache}/linnet/deps}

# XNNPACK's assembly kernels are off where the target is ARM, so that a row's bits depend neither on the number of rows
# nor on the kind of core (README.md). Decided here, from the arguments of the script that sources this file or from this
# machine, rather than in build_deps.sh: that file is part of every target's key.
case " $(uname -m) $* " in
  *" aarch64"* | *" arm"*) : "${LINNET_DEPS_ASSEMBLY:=OFF}" ;;
esac

say() { echo "[deps] $*" >&2; }

# One line on stderr: what, where, expected, found. Exit status 1.
fail() {
  echo "error: $*" >&2
  exit 1
}

# The lock without comments and blank lines; this is also what cache keys are made from.
lock_entries() { grep -vE '^[[:space:]]*(#|$)' "$LOCK_FILE"; }

# lock_field NAME FIELD_NUMBER
lock_field() {
  local value
  value=$(lock_entries | awk -v name="$1" -v field="$2" '$1 == name { print $field }')
  [[ -n $value ]] || fail "dependency '$1': expected an entry in $LOCK_FILE, found none"
  echo "$value"
}
lock_version() { lock_field "$1" 2; }
lock_kind() { lock_field "$1" 3; }
lock_package() { lock_field "$1" 4; }
lock_suites() { lock_field "$1" 5 | tr ',' ' '; }
lock_file() { lock_field "$1" 6; }
lock_sha256() { lock_field "$1" 7; }
lock_licence() { lock_field "$1" 8; }

sha256_of() { sha256sum "$1" | cut -d' ' -f1; }

# Folder in which the locked files are looked up.
tarballs_dir() { echo "${LINNET_DEPS_TARBALLS:-$DEPS_CACHE/tarballs}"; }

# unpack NAME DIR: the file's content, without a single enclosing folder if it has one.
unpack() {
  local name=$1 dir=$2 file entries
  file=$(tarballs_dir)/$(lock_file "$name")
  mkdir -p "$dir.unpack"
  if [[ $(lock_kind "$name") == deb ]]; then
    dpkg-deb --extract "$file" "$dir.unpack"
  else
    tar --extract --file="$file" --directory="$dir.unpack" --no-same-owner
  fi
  entries=("$dir.unpack"/*)
  if [[ ${#entries[@]} == 1 && -d ${entries[0]} && $(lock_kind "$name") == source ]]; then
    mv "${entries[0]}" "$dir"
    rmdir "$dir.unpack"
  else
    mv "$dir.unpack" "$dir"
  fi
}

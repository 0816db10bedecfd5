#!/usr/bin/env bash
# Fetches every file of deps.lock and checks its SHA-256.
#
#   toolchains/fetch_deps.sh            into the cache ($LINNET_DEPS_CACHE/tarballs)
#   toolchains/fetch_deps.sh DIR        into DIR, to carry it to a machine with no network
#
# With LINNET_DEPS_TARBALLS=DIR nothing is fetched: the files of DIR are checked and used.
#
# The files come from Debian's archive through apt with a configuration of its own: the sources, lists and caches of the
# system are neither read nor changed, so that a Debian 12 or an Ubuntu machine gets the pinned newer versions. Only the
# locked hash makes a file acceptable; the mirror and its signature need not be trusted.
# LINNET_DEBIAN_MIRROR replaces http://deb.debian.org/debian; a dated address of snapshot.debian.org is good where a
# version has left the suites.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/deps_common.sh"

MIRROR=${LINNET_DEBIAN_MIRROR:-http://deb.debian.org/debian}
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
WORK=''

cleanup() { [[ -z $WORK ]] || rm -rf "$WORK"; }
trap cleanup EXIT

# An apt.conf that keeps the system's transport settings (proxies) and drops its hooks and extra indexes.
write_apt_conf() {
  cat > "$WORK/apt.conf" <<EOF
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::Languages "none";
Acquire::Retries "3";
APT::Update::Error-Mode "any";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
// Old or frozen indexes are fine: what they lead to is checked against the lock.
Acquire::Check-Valid-Until "false";
Acquire::Check-Date "false";
APT::Sandbox::User "root";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "-";
Dir::Etc::preferencesparts "-";
Dir::State::status "/dev/null";
EOF
}

# apt_in SUITE TOOL ARGS...: apt-get or apt-cache that sees nothing but this suite.
apt_in() {
  local root=$WORK/$1 tool=$2
  shift 2
  "$tool" -q -c "$WORK/apt.conf" -o "Dir::Etc::sourcelist=$root/sources.list" \
    -o "Dir::State::lists=$root/lists" -o "Dir::Cache=$root/cache" "$@"
}

# Downloads a suite's indexes on its first use.
open_suite() {
  local suite=$1 root=$WORK/$1 trust='trusted=yes'
  [[ ! -e $root ]] || return 0
  mkdir -p "$root/lists/partial" "$root/cache/archives/partial"
  [[ ! -r $KEYRING ]] || trust="signed-by=$KEYRING"
  cat > "$root/sources.list" <<EOF
deb-src [target=Sources $trust] $MIRROR $suite main
deb [target=Packages $trust] $MIRROR $suite main
EOF
  say "reading the index of $suite from $MIRROR"
  if ! apt_in "$suite" apt-get update > "$root/update.log" 2>&1; then
    say "warning: the index of $suite cannot be read: $(grep -m1 -E '^(E|W):' "$root/update.log" || echo 'no reason given')"
  fi
}

# Prints the Debian version of the package whose file has the locked hash; nothing if the suite has none.
find_version() {
  local suite=$1 kind=$2 package=$3 sha256=$4 show=showsrc
  [[ $kind == source ]] || show=show
  { apt_in "$suite" apt-cache "$show" "$package" 2> /dev/null || true; } |
    awk -v package="$package" -v sha256="$sha256" '
      BEGIN { RS = ""; FS = "\n" }
      $1 == "Package: " package && index($0, sha256) {
        for (i = 1; i <= NF; ++i) if (sub(/^Version: /, "", $i)) { print $i; exit }
      }'
}

list_versions() {
  local suite=$1 kind=$2 package=$3 show=showsrc found
  [[ $kind == source ]] || show=show
  found=$({ apt_in "$suite" apt-cache "$show" "$package" 2> /dev/null || true; } |
    sed -n 's/^Version: //p' | sort -u | paste -sd, -)
  echo "$suite has ${found:-none}"
}

# fetch_from SUITE NAME DEST: false if this suite cannot give the file.
fetch_from() {
  local suite=$1 name=$2 dest=$3 kind package sha256 version folder file
  kind=$(lock_kind "$name") package=$(lock_package "$name") sha256=$(lock_sha256 "$name")
  open_suite "$suite"
  version=$(find_version "$suite" "$kind" "$package" "$sha256")
  [[ -n $version ]] || return 1
  folder=$(mktemp -d "$WORK/download.XXXXXX")
  if [[ $kind == source ]]; then
    (cd "$folder" && apt_in "$suite" apt-get source --download-only --tar-only --only-source "$package=$version")
  else
    (cd "$folder" && apt_in "$suite" apt-get download "$package=$version")
  fi > "$folder.log" 2>&1 || true
  for file in "$folder"/*; do
    if [[ -f $file && $(sha256_of "$file") == "$sha256" ]]; then
      mv "$file" "$dest.part.$$" && mv "$dest.part.$$" "$dest"
      return 0
    fi
  done
  say "warning: $package $version is listed in $suite but was not delivered: $(grep -m1 '^E:' "$folder.log" || tail -n1 "$folder.log")"
  return 1
}

fetch_one() {
  local name=$1 dest=$2 suite found=()
  for suite in $(lock_suites "$name"); do
    if fetch_from "$suite" "$name" "$dest"; then
      say "fetched $name $(lock_version "$name") from $suite"
      return
    fi
    found+=("$(list_versions "$suite" "$(lock_kind "$name")" "$(lock_package "$name")")")
  done
  fail "cannot fetch $name: Debian package $(lock_package "$name") at $MIRROR: expected the file" \
    "$(lock_file "$name") with SHA-256 $(lock_sha256 "$name"); found: $(IFS=';' && echo "${found[*]}")." \
    "Put that file into a folder and set LINNET_DEPS_TARBALLS to it, set LINNET_DEBIAN_MIRROR to a mirror that has it" \
    "(http://snapshot.debian.org/archive/debian/DATE), or pin another version (toolchains/README.md)"
}

# True if the file is there and right; an error if it is there and wrong in a folder that belongs to the user.
check_one() {
  local name=$1 file=$2 found
  [[ -f $file ]] || return 1
  found=$(sha256_of "$file")
  [[ $found != "$(lock_sha256 "$name")" ]] || return 0
  [[ -z ${LINNET_DEPS_TARBALLS:-} ]] ||
    fail "$file ($name): expected SHA-256 $(lock_sha256 "$name"), found $found"
  say "warning: $file has SHA-256 $found, fetching it again"
  return 1
}

main() {
  local dir name names missing=()
  [[ $# -le 1 && ${1:-} != -* ]] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  dir=${1:-$(tarballs_dir)}
  names=$(lock_entries | awk '{ print $1 }')
  if [[ -n ${LINNET_DEPS_TARBALLS:-} && ! -d $LINNET_DEPS_TARBALLS ]]; then
    fail "LINNET_DEPS_TARBALLS: expected a folder with the files of $LOCK_FILE, found no folder $LINNET_DEPS_TARBALLS"
  fi
  mkdir -p "$dir"
  exec 8> "$dir/.lock"
  flock 8
  for name in $names; do
    check_one "$name" "$dir/$(lock_file "$name")" || missing+=("$name")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ -n ${LINNET_DEPS_TARBALLS:-} ]]; then
    fail "LINNET_DEPS_TARBALLS=$LINNET_DEPS_TARBALLS: expected $(lock_file "${missing[0]}") (${missing[0]}), found no such file" \
      "(${#missing[@]} missing in all: ${missing[*]})"
  fi
  command -v apt-get > /dev/null ||
    fail "fetching ${#missing[@]} sources: expected apt-get on this machine, found none; set LINNET_DEPS_TARBALLS to a folder filled by fetch_deps.sh elsewhere"
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/linnet-apt.XXXXXX")
  write_apt_conf
  for name in "${missing[@]}"; do fetch_one "$name" "$dir/$(lock_file "$name")"; done
}

main "$@"
exit

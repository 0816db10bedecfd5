#!/bin/sh
# Unpacks llama.cpp of Debian unstable with all that it needs into a folder, without touching this system: to run it
# with chroot from there. For compare_llama_cpp.sh --chroot.
set -eu

if [ $# -ne 1 ] || [ "$1" = "--help" ]; then
  echo "usage: get_llama_cpp.sh FOLDER      (Debian or Ubuntu, amd64 or arm64, as root; about 150 MB)" >&2
  exit 2
fi
mkdir -p "$1"
root=$(cd "$1" && pwd)
if [ "$root" = / ]; then
  echo "get_llama_cpp.sh: FOLDER: expected one of its own, found /" >&2
  exit 2
fi
apt=$root/var/apt

mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/empty"
: > "$apt/state/status"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# Ubuntu has Debian's keys in the package debian-archive-keyring.
if [ ! -e "$keyring" ]; then
  echo "get_llama_cpp.sh: $keyring: expected Debian's keys: install debian-archive-keyring" >&2
  exit 1
fi
echo "deb [signed-by=$keyring] http://deb.debian.org/debian unstable main" > "$apt/sources.list"
cat > "$apt/apt.conf" <<END
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/empty";
Dir::Etc::preferencesparts "$apt/empty";
APT::Architecture "$(dpkg --print-architecture)";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
END
APT_CONFIG=$apt/apt.conf apt-get -q update
APT_CONFIG=$apt/apt.conf apt-get -q -y install --download-only llama.cpp-tools

# Packages expect /bin, /lib and so on to be links into /usr.
mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/dev" "$root/proc" "$root/tmp"
for name in bin sbin lib lib64; do
  [ -e "$root/$name" ] || ln -s "usr/$name" "$root/$name"
done
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb -x "$package" "$root"
done
[ -e "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
rm -rf "$apt/cache" "$apt/state"
chroot "$root" /usr/bin/llama-bench --version

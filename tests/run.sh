#!/usr/bin/env bash
# Sets everything up, builds the release preset and runs all tests of this machine; with --all, on x86-64, those of the
# ARM programs under QEMU too.
#
#   tests/run.sh                this machine's tests: no cross compilers, no QEMU
#   tests/run.sh --all          the ARM tests too
#   tests/run.sh --emulated     the ARM tests alone
#   tests/run.sh --build-only   stop after this machine's build
#   tests/run.sh --program      build the program alone, no tests
#
# Needs a Debian 12 or Ubuntu 24.04 machine (or newer) with nothing installed: what is missing is installed with apt-get,
# as root or through sudo. Dependencies are built once into a cache in the home folder (toolchains/README.md).
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PRESET=release

fail() {
  echo "error: $*" >&2
  exit 1
}

# Debian package of each program that the build runs, "program:package".
NEEDED=(g++:g++ gcc:gcc make:make cmake:cmake ninja:ninja-build python3:python3 ccache:ccache xz:xz-utils tar:tar
  flock:util-linux dpkg-deb:dpkg)
# Presets of other machines whose tests run here, and what they need besides.
EMULATED_PRESETS=(aarch64-linux-gnu armv7-linux-gnueabihf)
NEEDED_TO_EMULATE=(aarch64-linux-gnu-g++:g++-aarch64-linux-gnu arm-linux-gnueabihf-g++:g++-arm-linux-gnueabihf
  qemu-aarch64-static:qemu-user-static qemu-arm-static:qemu-user-static)
# The tests of the package, and of examples/android on this machine's JVM.
NEEDED_TO_TEST=(pkg-config:pkgconf javac:openjdk-17-jdk-headless mvn:maven)

missing_packages() {
  local pair
  for pair in "${NEEDED[@]}"; do
    command -v "${pair%%:*}" > /dev/null || echo "${pair##*:}"
  done
}

# run_as_root COMMAND ARGS...
run_as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

install_packages() {
  local packages log
  packages=$(missing_packages | sort -u | xargs)
  if [[ -z $packages ]]; then
    echo "nothing to install"
    return
  fi
  command -v apt-get > /dev/null ||
    fail "this machine lacks: $packages; expected apt-get (Debian 12, Ubuntu 24.04) to install them, found none; install them and run again"
  [[ $(id -u) == 0 ]] || command -v sudo > /dev/null ||
    fail "this machine lacks: $packages; expected root or sudo to install them, found neither; run as root: apt-get install $packages"
  echo "installing: $packages"
  log=$(mktemp)
  # shellcheck disable=SC2086 # one word per package
  if ! { run_as_root apt-get update -q &&
    run_as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages; } > "$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "installing $packages with apt-get failed; the lines above are its last ones"
  fi
  rm -f "$log"
  packages=$(missing_packages | xargs)
  [[ -z $packages ]] || fail "after apt-get install: expected every needed program, found none for: $packages"
}

# build_dependencies TARGET...: an empty one is this machine.
build_dependencies() {
  local target prefix
  for target in "$@"; do
    prefix=$("$ROOT/toolchains/build_deps.sh" ${target:+--target "$target"} --print)
    if [[ -d $prefix ]]; then
      echo "cached: $prefix"
    else
      "$ROOT/toolchains/build_deps.sh" ${target:+--target "$target"}
    fi
  done
}

configure() { cmake --preset "$PRESET"; }
compile() { cmake --build --preset "$PRESET" --parallel "$(nproc)" "$@"; }
run_tests() { ctest --preset "$PRESET" --parallel "$(nproc)"; }

# phase LABEL FUNCTION: runs it and says how long it took. The script ends with the first that fails (set -e).
phase() {
  local label=$1 start=$SECONDS
  shift
  echo "== $label"
  "$@"
  echo "== $label: $((SECONDS - start)) s"
}

build_native() {
  phase "dependencies" build_dependencies tools ""
  phase "configure" configure
  phase "build" compile "$@"
}

test_emulated() {
  for PRESET in "${EMULATED_PRESETS[@]}"; do
    phase "$PRESET: dependencies" build_dependencies tools "$PRESET"
    phase "$PRESET: configure" configure
    phase "$PRESET: build" compile
    echo "== $PRESET: tests"
    run_tests
  done
}

main() {
  local native=0 emulated=0 build=1 target=()
  case ${1:-} in
    "") native=1 ;;
    --all) native=1 emulated=1 ;;
    --emulated) emulated=1 build=0 ;;
    --build-only) ;;
    --program) target=(--target linnet_cli) ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  [[ $(uname -m) == x86_64 ]] || emulated=0
  [[ $emulated == 0 ]] || NEEDED+=("${NEEDED_TO_EMULATE[@]}")
  [[ $build == 0 || ${#target[@]} != 0 ]] || NEEDED+=("${NEEDED_TO_TEST[@]}")
  cd "$ROOT"
  phase "install packages" install_packages
  [[ $build == 0 ]] || build_native "${target[@]}"
  if [[ $native == 1 ]]; then
    echo "== tests"
    run_tests # its closing lines tell the time
  fi
  [[ $emulated == 0 ]] || test_emulated
}

main "$@"

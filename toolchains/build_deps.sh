#!/usr/bin/env bash
# Builds the dependencies of deps.lock for one target into a cache; does nothing if they are there.
#
#   toolchains/build_deps.sh [--target TRIPLE] [--print]
#
#   --target   a toolchain file of this folder without .cmake (default: this machine), or `tools`: only the programs
#              that a build runs on this machine (flatc)
#   --print    print the folder that the result has or would have, build nothing
#
# The result is $LINNET_DEPS_CACHE/TRIPLE-KEY (default cache: ~/.cache/linnet/deps) with include/, include-internal/ (of
# XNNPACK), lib/, licences/, or bin/ for the tools. KEY is made from the versions and hashes of the lock, this script, the
# toolchain file, the compiler's version and the options below, so that a change of any of them builds anew beside the
# old result. The path of the result is the last line on stdout; progress goes to stderr. Safe to interrupt and to run
# twice at the same time.
#
# Environment: LINNET_DEPS_CACHE; LINNET_DEPS_TARBALLS and LINNET_DEBIAN_MIRROR (fetch_deps.sh); LINNET_DEPS_JOBS (default:
# all cores); LINNET_DEPS_ASSEMBLY=ON|OFF (XNNPACK's assembly kernels for ARM, default ON); CC and CXX (native targets).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/deps_common.sh"

# Flags of the environment would be part of the result without being part of its key.
unset CFLAGS CXXFLAGS CPPFLAGS LDFLAGS ASMFLAGS CMAKE_TOOLCHAIN_FILE CMAKE_PREFIX_PATH CMAKE_BUILD_TYPE DESTDIR

JOBS=${LINNET_DEPS_JOBS:-$(nproc)}
ASSEMBLY=${LINNET_DEPS_ASSEMBLY:-ON}
TARGET='' PREFIX='' WORK='' STAGE='' CODEGEN_FLAGS=''

host_target() {
  case $(uname -m) in
    armv7* | armv8l) echo armv7-linux-gnueabihf ;;
    *) echo "$(uname -m)-linux-gnu" ;;
  esac
}

is_native() { [[ $TARGET == tools || $TARGET == "$(host_target)" ]]; }
toolchain_file() { echo "$TOOLCHAINS_DIR/$TARGET.cmake"; }

# The compiler whose version is part of the key: CMake's own choice for native targets, else the toolchain file's.
compiler() {
  if is_native; then
    echo "${CXX:-c++}"
  elif [[ $TARGET == *-android* ]]; then
    echo "${ANDROID_NDK_HOME:-}/toolchains/llvm/prebuilt/linux-x86_64/bin/clang++"
  else
    sed -n 's/^set(CMAKE_CXX_COMPILER \(.*\))$/\1/p' "$(toolchain_file)"
  fi
}

check_programs() {
  local program
  is_native || [[ -f $(toolchain_file) ]] ||
    fail "--target $TARGET: expected a toolchain file $(toolchain_file), found none"
  command -v "$(compiler)" > /dev/null ||
    fail "target $TARGET: expected the compiler '$(compiler)', found no such program"
  for program in cmake ninja python3 sha256sum flock tar xz; do
    command -v "$program" > /dev/null || fail "target $TARGET: expected the program '$program', found none (apt-get install it)"
  done
}

prefix_of_target() {
  local key
  key=$({
    lock_entries | awk '{ print $1, $2, $7 }'
    cat "$TOOLCHAINS_DIR/build_deps.sh"
    is_native || cat "$(toolchain_file)"
    "$(compiler)" --version | sed -n 1p
    echo "$TARGET $ASSEMBLY"
  } | sha256sum | cut -c1-16)
  echo "$DEPS_CACHE/$TARGET-$key"
}

# cmake_build NAME SOURCE_DIR INSTALL_PREFIX CMAKE_ARGS...
cmake_build() {
  local name=$1 source=$2 prefix=$3 build=$WORK/build/$1 args=()
  shift 3
  is_native || args+=("-DCMAKE_TOOLCHAIN_FILE=$(toolchain_file)")
  if command -v ccache > /dev/null; then
    args+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  cmake -G Ninja -S "$source" -B "$build" -Wno-dev --no-warn-unused-cli \
    -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
    "-DCMAKE_C_FLAGS_RELEASE=$CODEGEN_FLAGS ${EXTRA_FLAGS:-}" "-DCMAKE_CXX_FLAGS_RELEASE=$CODEGEN_FLAGS ${EXTRA_FLAGS:-}" \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF \
    -DCMAKE_C_VISIBILITY_PRESET=hidden -DCMAKE_CXX_VISIBILITY_PRESET=hidden -DCMAKE_VISIBILITY_INLINES_HIDDEN=ON \
    -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF "${args[@]}" "$@"
  cmake --build "$build" --parallel "$JOBS"
  cmake --install "$build"
}

install_headers() { # install_headers SOURCE_DIR DEST_DIR: every header below, with its relative path
  mkdir -p "$2"
  (cd "$1" && find . \( -name '*.h' -o -name '*.hpp' \) -print0 | tar --create --null --files-from=- --file=-) |
    tar --extract --directory="$2" --file=-
}

# One function per dependency: build_NAME SOURCE_DIR, run with stdout and stderr in a log.

build_xnnpack() {
  # Off: AVX-VNNI-INT8 (g++ 12 lacks it), SME (likewise), KleidiAI (a further download). XNNPACK_USE_SYSTEM_LIBS keeps
  # CMake from downloading; the paths lead to what was built before.
  cmake_build xnnpack "$1" "$STAGE" -DXNNPACK_LIBRARY_TYPE=static -DXNNPACK_BUILD_TESTS=OFF \
    -DXNNPACK_BUILD_BENCHMARKS=OFF -DXNNPACK_BUILD_ALL_MICROKERNELS=OFF -DXNNPACK_USE_SYSTEM_LIBS=ON \
    -DXNNPACK_ENABLE_AVXVNNIINT8=OFF -DXNNPACK_ENABLE_ARM_SME=OFF -DXNNPACK_ENABLE_ARM_SME2=OFF \
    -DXNNPACK_ENABLE_KLEIDIAI=OFF "-DXNNPACK_ENABLE_ASSEMBLY=$ASSEMBLY" \
    "-DCPUINFO_SOURCE_DIR=$STAGE" "-DCPUINFO_LIBRARY=$STAGE/lib/libcpuinfo.a" \
    "-DPTHREADPOOL_SOURCE_DIR=$STAGE" "-DPTHREADPOOL_LIBRARY=$STAGE/lib/libpthreadpool.a" \
    "-DFXDIV_SOURCE_DIR=$STAGE" "-DFXDIV_HDR=$STAGE/include/fxdiv.h"
  install_headers "$1/src/xnnpack" "$STAGE/include-internal/xnnpack"
}

build_pthreadpool() {
  cmake_build pthreadpool "$1" "$STAGE" -DPTHREADPOOL_LIBRARY_TYPE=static -DPTHREADPOOL_ALLOW_DEPRECATED_API=OFF \
    -DPTHREADPOOL_BUILD_TESTS=OFF -DPTHREADPOOL_BUILD_BENCHMARKS=OFF "-DFXDIV_SOURCE_DIR=$WORK/src/fxdiv"
  # ThreadSanitizer must see the pool's atomics, else every parallel kernel looks like a race.
  if is_native && "${CC:-cc}" -fsanitize=thread -x c -c /dev/null -o /dev/null; then
    EXTRA_FLAGS="-fsanitize=thread -g" cmake_build pthreadpool-tsan "$1" "$WORK/tsan" \
      -DPTHREADPOOL_LIBRARY_TYPE=static -DPTHREADPOOL_ALLOW_DEPRECATED_API=OFF -DPTHREADPOOL_BUILD_TESTS=OFF \
      -DPTHREADPOOL_BUILD_BENCHMARKS=OFF "-DFXDIV_SOURCE_DIR=$WORK/src/fxdiv"
    install -D -m 644 "$WORK/tsan/lib/libpthreadpool.a" "$STAGE/lib/tsan/libpthreadpool.a"
  fi
}

build_cpuinfo() {
  cmake_build cpuinfo "$1" "$STAGE" -DCPUINFO_LIBRARY_TYPE=static -DCPUINFO_BUILD_TOOLS=OFF \
    -DCPUINFO_BUILD_UNIT_TESTS=OFF -DCPUINFO_BUILD_MOCK_TESTS=OFF -DCPUINFO_BUILD_BENCHMARKS=OFF \
    -DCPUINFO_BUILD_PKG_CONFIG=OFF
}

build_highway() {
  # contrib is header-only apart from the sorting code, which takes minutes and is not used.
  cmake_build highway "$1" "$STAGE" -DHWY_ENABLE_CONTRIB=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_TESTS=OFF \
    -DHWY_ENABLE_INSTALL=ON -DHWY_FORCE_STATIC_LIBS=ON
  install_headers "$1/hwy/contrib" "$STAGE/include/hwy/contrib"
}

build_flatbuffers() {
  cmake_build flatbuffers "$1" "$STAGE" -DFLATBUFFERS_BUILD_TESTS=OFF -DFLATBUFFERS_BUILD_FLATC=OFF \
    -DFLATBUFFERS_BUILD_FLATHASH=OFF -DFLATBUFFERS_BUILD_FLATLIB=ON -DFLATBUFFERS_LIBCXX_WITH_CLANG=OFF
}

build_pcre2() {
  cmake_build pcre2 "$1" "$STAGE" -DPCRE2_BUILD_PCRE2_8=ON -DPCRE2_BUILD_PCRE2_16=OFF -DPCRE2_BUILD_PCRE2_32=OFF \
    -DPCRE2_SUPPORT_UNICODE=ON -DPCRE2_SUPPORT_JIT=ON -DPCRE2_STATIC_PIC=ON -DPCRE2_BUILD_PCRE2GREP=OFF \
    -DPCRE2_BUILD_TESTS=OFF -DPCRE2_SUPPORT_LIBBZ2=OFF -DPCRE2_SUPPORT_LIBZ=OFF \
    -DPCRE2_SUPPORT_LIBREADLINE=OFF -DPCRE2_SUPPORT_LIBEDIT=OFF -DPCRE2_SHOW_REPORT=OFF
}

build_utf8proc() { cmake_build utf8proc "$1" "$STAGE"; }

build_fxdiv() { install_headers "$1/include" "$STAGE/include"; }
build_fp16() { install_headers "$1/include" "$STAGE/include"; }
build_nlohmann-json() { install_headers "$1/single_include/nlohmann" "$STAGE/include/nlohmann"; }
build_cli11() { install_headers "$1/include/CLI" "$STAGE/include/CLI"; }
build_doctest() { install -D -m 644 "$1/doctest/doctest.h" "$STAGE/include/doctest/doctest.h"; }

build_tools() {
  cmake_build flatc "$1" "$WORK/flatc" -DFLATBUFFERS_BUILD_TESTS=OFF -DFLATBUFFERS_BUILD_FLATC=ON \
    -DFLATBUFFERS_BUILD_FLATHASH=OFF -DFLATBUFFERS_LIBCXX_WITH_CLANG=OFF
  install -D "$WORK/flatc/bin/flatc" "$STAGE/bin/flatc"
}

# run_step LABEL FUNCTION ARGS...: keeps the log, shows its end if the step fails.
run_step() {
  local label=$1 log=$WORK/logs/$2.log start=$SECONDS status
  shift
  mkdir -p "$WORK/logs"
  set +e # `set -e` would be off inside the step if its status were tested here
  (set -e; "$@") > "$log" 2>&1 < /dev/null
  status=$?
  set -e
  if [[ $status != 0 ]]; then
    tail -n 40 "$log" >&2
    fail "target $TARGET: building $label failed with status $status; the lines above are the end of $log"
  fi
  say "$TARGET: $label, $((SECONDS - start)) s"
}

unpack_all() {
  local name
  for name in "$@"; do unpack "$name" "$WORK/src/$name"; done
}

keep_licences() {
  local name=$1 file
  for file in "$WORK/src/$name"/LICEN[CS]E* "$WORK/src/$name"/COPYING "$WORK/src/$name"/usr/share/doc/*/copyright; do
    [[ ! -f $file ]] || install -D -m 644 "$file" "$STAGE/licences/$name/$(basename "$file")"
  done
}

build_all() {
  # What the others need comes first, the longest last.
  local order=(fxdiv fp16 nlohmann-json cli11 doctest pthreadpool cpuinfo highway flatbuffers pcre2 utf8proc xnnpack)
  local name missing
  missing=$(comm -3 <(printf '%s\n' "${order[@]}" | sort) <(lock_entries | awk '{ print $1 }' | sort) | xargs)
  [[ -z $missing ]] || fail "$LOCK_FILE: expected the dependencies that build_deps.sh builds, found a difference: $missing"
  run_step "unpack ${#order[@]} sources" unpack_all "${order[@]}"
  for name in "${order[@]}"; do
    run_step "$name $(lock_version "$name")" "build_$name" "$WORK/src/$name"
    keep_licences "$name"
  done
  # These name the folder of the build; deps.cmake describes the result instead.
  rm -rf "${STAGE:?}/lib/cmake" "$STAGE/lib/pkgconfig" "$STAGE/share" "${STAGE:?}/bin" "$STAGE/lib/libpcre2-posix.a" \
    "$STAGE/include/pcre2posix.h"
}

build_host_tools() {
  run_step "unpack flatbuffers" unpack_all flatbuffers
  run_step "flatc $(lock_version flatbuffers)" build_tools "$WORK/src/flatbuffers"
}

build() {
  local start=$SECONDS
  mkdir -p "$DEPS_CACHE/work"
  exec 9> "$DEPS_CACHE/work/$(basename "$PREFIX").lock"
  if ! flock --nonblock 9; then
    say "$TARGET: another run is building, waiting for it"
    flock 9
  fi
  [[ ! -d $PREFIX ]] || return 0
  "$TOOLCHAINS_DIR/fetch_deps.sh" 9>&-
  WORK=$DEPS_CACHE/work/$(basename "$PREFIX")
  STAGE=$WORK/stage
  rm -rf "$WORK"
  mkdir -p "$STAGE" "$WORK/src"
  # Sections let the linker drop what is unused; the map keeps this folder's name out of the result. Not in
  # CMAKE_C_FLAGS, where they would replace the toolchain file's baseline.
  CODEGEN_FLAGS="-O2 -DNDEBUG -ffunction-sections -fdata-sections -ffile-prefix-map=$WORK=/linnet-deps"
  export CCACHE_BASEDIR=$WORK CCACHE_NOHASHDIR=1
  if [[ $TARGET == tools ]]; then build_host_tools; else build_all; fi
  mv "$STAGE" "$PREFIX"
  rm -rf "$WORK"
  say "$TARGET: built in $((SECONDS - start)) s with $JOBS jobs: $PREFIX"
}

usage() {
  sed -n '2,/^set -euo/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

main() {
  local print=0
  while [[ $# -gt 0 ]]; do
    case $1 in
      --target) [[ $# -ge 2 ]] || usage; TARGET=$2; shift 2 ;;
      --print) print=1; shift ;;
      *) usage ;;
    esac
  done
  TARGET=${TARGET:-$(host_target)}
  check_programs
  PREFIX=$(prefix_of_target)
  [[ $print == 1 || -d $PREFIX ]] || build
  echo "$PREFIX"
}

main "$@"
exit # so that bash reads no further if this file is edited meanwhile

#!/usr/bin/env bash
# Sets everything up on a bare machine, fetches the default model, converts it once, opens the chat.
#
#   examples/chat/run.sh [OPTIONS OF linnet chat]      for example: --system "You are a pirate." --temp 0
#
# What is made: build/release in the project, dependencies and models in the cache folder ($LINNET_CACHE, else
# $XDG_CACHE_HOME/linnet, else ~/.cache/linnet). The second run finds all of it and takes a second.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LINNET=$ROOT/build/release/bin/linnet
CACHE=${LINNET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/linnet}
MODEL=$CACHE/models/SmolLM2-135M-Instruct.q8.linnet

# The build's own lines go to a log; its phases, and the end of the log where it fails, are shown.
build() {
  local log=$ROOT/build/chat-build.log
  mkdir -p "$ROOT/build"
  if ! "$ROOT/tests/run.sh" --program 2>&1 | tee "$log" | sed -un 's/^== //p' >&2; then
    tail -n 30 "$log" >&2
    echo "run.sh: the build failed: $log" >&2
    exit 1
  fi
}

# A file that the program cannot read (of an older format, or cut off) is made anew.
convert() {
  local source
  if "$LINNET" inspect "$MODEL" > /dev/null 2>&1; then
    return
  fi
  source=$("$ROOT/examples/chat/fetch_default_model.sh" "$CACHE/models")
  mkdir -p "$(dirname "$MODEL")"
  "$LINNET" convert "$source" -o "$MODEL" >&2
}

build
convert
exec "$LINNET" chat "$MODEL" "$@"

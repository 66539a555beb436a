#!/usr/bin/env bash
# Makes the data and the random model of recipes/tiny_moe.yaml (once) and trains it. Arguments are overrides.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh keel
keel=build/release/bin/keel
[[ -f models/tiny_moe_data/test.jsonl ]] || python3 scripts/make_additions.py models/tiny_moe_data
[[ -f models/tiny_moe/config.json ]] ||
  $keel init recipes/tiny_moe_config.json models/tiny_moe --tokenizer tests/golden/tokenizers/qwen >/dev/null
$keel train recipes/tiny_moe.yaml "$@"

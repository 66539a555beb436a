#!/usr/bin/env bash
# Builds everything and runs the tests (about 3 minutes after the build).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh all
ctest --test-dir build/release --output-on-failure -j "$(nproc)"

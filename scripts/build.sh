#!/usr/bin/env bash
# Installs dependencies if they are missing, configures and builds. Usage: scripts/build.sh [target ...]
# The first build takes about 12 minutes on two cores, later ones only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh
preset=${KEEL_PRESET:-release}
if [[ ! -f build/$preset/build.ninja ]]; then
  echo "build: configuring build/$preset"
  cmake --preset "$preset" ${KEEL_CMAKE_ARGS:-} >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; rm -f "build-$preset.log"; exit 1; }
  rm -f "build-$preset.log"
fi
jobs=${KEEL_JOBS:-$(nproc)}
echo "build: ${*:-everything} in build/$preset with $jobs jobs"
ninja -C "build/$preset" -j "$jobs" --quiet "$@"

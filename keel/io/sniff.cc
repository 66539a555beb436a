#include "keel/io/sniff.h"

#include <string_view>

#include "keel/io/file_error.h"

namespace keel {
namespace {

bool starts_with(std::span<const std::byte> bytes, std::string_view prefix) {
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
      .starts_with(prefix);
}

}  // namespace

void refuse_lfs_pointer(const std::string& path, std::span<const std::byte> bytes) {
  if (starts_with(bytes, "version https://git-lfs")) {
    throw_file_error("lfs_pointer", path,
                     "expected the file itself, got a Git LFS pointer; try: git lfs pull");
  }
}

void refuse_pickle(const std::string& path, std::span<const std::byte> bytes) {
  if (starts_with(bytes, "PK\x03\x04") || starts_with(bytes, "\x80\x02") ||
      starts_with(bytes, "\x80\x04")) {
    throw_file_error("wrong_format", path,
                     "expected safetensors, got a zip or pickle file, which is never opened; try: "
                     "save it again with transformers (safe_serialization=True)");
  }
}

}  // namespace keel

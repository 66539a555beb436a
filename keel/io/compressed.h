// Whole files, plain, gzip or zstd (told by their first bytes, not by the name).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace keel {

enum class Compression { kNone, kGzip, kZstd };

Compression detect_compression(std::span<const std::byte> bytes);

// The unpacked content. Several gzip members or zstd frames are joined. Throws FileError:
// missing_file, "too_large" above max_bytes of content, "bad_compression" for damaged or truncated
// data.
std::string read_file(const std::string& path, uint64_t max_bytes = uint64_t{4} << 30);

}  // namespace keel

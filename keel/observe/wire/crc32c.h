// CRC-32C (Castagnoli) and the masking that TFRecord files put on it.
#pragma once

#include <cstdint>
#include <string_view>

namespace keel::wire {

uint32_t crc32c(std::string_view bytes);

// Rotated and offset, so that a CRC of data that holds CRCs stays useful (TFRecord format).
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace keel::wire

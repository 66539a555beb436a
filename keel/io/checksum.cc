#include "keel/io/checksum.h"

#include <xxhash.h>

#include <algorithm>
#include <new>

#include "keel/io/mapped_file.h"

namespace keel {

struct Checksum::State {
  XXH3_state_t* xxh;
};

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Checksum::Checksum() : state_(std::make_unique<State>(State{XXH3_createState()})) {
  if (state_->xxh == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_->xxh);
}

Checksum::~Checksum() {
  if (state_) XXH3_freeState(state_->xxh);
}

Checksum::Checksum(Checksum&&) noexcept = default;

Checksum& Checksum::operator=(Checksum&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t checksum_file(const std::string& path) {
  const MappedFile file(path);
  constexpr size_t kPiece = 16u << 20;
  Checksum sum;
  for (auto rest = file.bytes(); !rest.empty();) {
    const auto piece = rest.first(std::min(rest.size(), kPiece));
    sum.update(piece);
    file.drop_pages(piece);
    rest = rest.subspan(piece.size());
  }
  return sum.value();
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace keel

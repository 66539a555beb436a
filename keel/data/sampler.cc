#include "keel/data/sampler.h"

#include <fmt/format.h>

#include <numeric>

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel {

std::vector<int64_t> epoch_order(int64_t n, uint64_t seed, int64_t epoch, bool shuffle) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  const uint64_t key = mix_key(seed, static_cast<uint64_t>(epoch));
  for (int64_t i = n - 1; i > 0; --i) {  // Fisher-Yates
    const auto j = uniform_int(static_cast<uint64_t>(i) + 1, key, static_cast<uint64_t>(i));
    std::swap(order[static_cast<size_t>(i)], order[j]);
  }
  return order;
}

Sampler::Sampler(int64_t num_rows, uint64_t fingerprint, const SamplerOptions& options)
    : num_rows_(num_rows), fingerprint_(fingerprint), options_(options) {
  KEEL_REQUIRE(num_rows > 0, "[data] expected at least one row, got {}", num_rows);
  start_epoch(0);
}

void Sampler::start_epoch(int64_t epoch) {
  epoch_ = epoch;
  index_ = 0;
  order_ = epoch_order(num_rows_, options_.seed, epoch, options_.shuffle);
}

std::vector<int64_t> Sampler::next(int64_t n) {
  KEEL_REQUIRE(
      n > 0 && (n <= num_rows_ || !options_.drop_last),
      "[data] expected a batch of 1 to {} rows, got {}; try a smaller batch or drop_last = false",
      num_rows_, n);
  if (options_.drop_last && num_rows_ - index_ < n) start_epoch(epoch_ + 1);
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(n));
  while (static_cast<int64_t>(rows.size()) < n) {
    if (index_ == num_rows_) start_epoch(epoch_ + 1);
    rows.push_back(order_[static_cast<size_t>(index_++)]);
  }
  return rows;
}

Json Sampler::state() const {
  return {{"epoch", epoch_},
          {"index", index_},
          {"seed", options_.seed},
          {"num_rows", num_rows_},
          {"fingerprint", fmt::format("{:016x}", fingerprint_)}};
}

bool Sampler::restore(const Json& state) {
  try {
    const auto epoch = state.at("epoch").get<int64_t>();
    const auto index = state.at("index").get<int64_t>();
    const bool same =
        state.at("num_rows").get<int64_t>() == num_rows_ &&
        state.at("seed").get<uint64_t>() == options_.seed &&
        state.at("fingerprint").get<std::string>() == fmt::format("{:016x}", fingerprint_);
    KEEL_REQUIRE(epoch >= 0 && index >= 0 && (!same || index <= num_rows_),
                 "[data] sampler state: epoch {}, index {} of {} rows", epoch, index, num_rows_);
    start_epoch(epoch);
    if (same) index_ = index;
    return same;
  } catch (const Json::exception& e) {
    throw_invalid("[data] expected a sampler state, got {}: {}", state.dump(), e.what());
  }
}

}  // namespace keel

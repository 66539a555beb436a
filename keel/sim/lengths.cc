#include "keel/sim/lengths.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keel/base/error.h"
#include "keel/base/rng.h"
#include "keel/sim/input/fields.h"

namespace keel::sim {
namespace {

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// Box-Muller; counter_hi separates the draws of prompts from those of samples.
double normal(uint64_t key, uint64_t index, uint64_t stream) {
  const double u = uniform(key, index, 2 * stream);
  const double v = uniform(key, index, 2 * stream + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

double capped_mean(double mu, double sigma, double cap) {
  const double log_cap = std::log(cap);
  if (sigma <= 0) return std::min(cap, std::exp(mu));
  return std::exp(mu + sigma * sigma / 2) * normal_cdf((log_cap - mu - sigma * sigma) / sigma) +
         cap * (1 - normal_cdf((log_cap - mu) / sigma));
}

template <class F>
double bisect(double low, double high, const F& too_small) {
  for (int i = 0; i < 60; ++i) {
    const double mid = (low + high) / 2;
    (too_small(mid) ? low : high) = mid;
  }
  return (low + high) / 2;
}

}  // namespace

double fit_log_mean(double log_sigma, double mean, double cap) {
  KEEL_REQUIRE(mean > 0 && mean <= cap,
               "[lengths.mean] expected a mean above 0 and at most the cap {}, got {}", cap, mean);
  return bisect(-20, std::log(cap) + 40,
                [&](double mu) { return capped_mean(mu, log_sigma, cap) < mean; });
}

std::vector<int64_t> draw_lengths(const LengthModel& model, int64_t num_prompts,
                                  int64_t samples_per_prompt, double mean, int64_t cap,
                                  uint64_t seed) {
  KEEL_REQUIRE(num_prompts >= 0 && samples_per_prompt >= 0,
               "[lengths] expected counts of at least 0, got {} prompts of {} samples", num_prompts,
               samples_per_prompt);
  const double limit = static_cast<double>(cap);
  fit_log_mean(model.log_sigma, mean, limit);  // checks mean and cap
  const double shared = std::sqrt(model.within_prompt_correlation);
  const double own = std::sqrt(1 - model.within_prompt_correlation);
  std::vector<double> spread;  // of the logarithm around mu
  spread.reserve(static_cast<size_t>(num_prompts * samples_per_prompt));
  const uint64_t key = mix_key(seed, 0x6c656e67);
  for (int64_t p = 0; p < num_prompts; ++p) {
    const double g = normal(key, static_cast<uint64_t>(p), 0);
    const bool tail = uniform(key, static_cast<uint64_t>(p), 8) < model.tail_share;
    const double sigma = model.log_sigma * (tail ? model.tail_factor : 1);
    for (int64_t s = 0; s < samples_per_prompt; ++s) {
      const auto index = static_cast<uint64_t>(p * samples_per_prompt + s);
      spread.push_back(sigma * (shared * g + own * normal(key, index, 1)));
    }
  }
  // The published mean is that of the very batch, so the draw is shifted until its own mean fits.
  const double count = static_cast<double>(spread.size());
  const double mu = bisect(-20, std::log(limit) + 40, [&](double m) {
    double sum = 0;
    for (const double x : spread) sum += std::clamp(std::exp(m + x), 1.0, limit);
    return sum < mean * count;
  });
  std::vector<int64_t> lengths;
  lengths.reserve(spread.size());
  for (const double x : spread) {
    lengths.push_back(std::llround(std::clamp(std::exp(mu + x), 1.0, limit)));
  }
  return lengths;
}

LengthModel load_length_model(const std::string& path) {
  const auto file = open_input(read_input_text(path), path, "sim-lengths/1");
  MapReader in(file, file->root, "", 1);
  LengthModel m;
  in.require("default");
  auto d = in.map("default");
  d.read("log_sigma", m.log_sigma);
  d.read("within_prompt_correlation", m.within_prompt_correlation);
  d.read("tail_share", m.tail_share);
  d.read("tail_factor", m.tail_factor, 1);
  for (const char* key : {"cap", "alternatives", "notes"}) d.ignore(key);
  d.finish(Unknown::kError);
  if (m.within_prompt_correlation > 1) {
    d.fault("within_prompt_correlation", "a number of at most 1",
            fmt::format("{}", m.within_prompt_correlation));
  }
  if (m.tail_share > 1) d.fault("tail_share", "a share of at most 1", "more");
  file->findings.throw_if_errors();
  return m;
}

}  // namespace keel::sim

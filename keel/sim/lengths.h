// How long responses get: a truncated log-normal whose logarithms correlate within a prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keel::sim {

struct LengthModel {
  double log_sigma = 0.6;
  double within_prompt_correlation = 0.85;  // of the logarithm
  // Share of prompts whose logarithm spreads `tail_factor` times as far: a heavier tail than one
  // log-normal. 0 = none.
  double tail_share = 0;
  double tail_factor = 1;
};

// Lengths of prompts x samples responses, prompt by prompt: min(cap, exp(mu + sigma * (sqrt(rho) *
// g_prompt + sqrt(1 - rho) * g_sample))), mu from the mean of the capped variable; at least 1.
// Pure: the draw depends on the seed only. Throws Error(kInvalid) if mean is not in (0, cap].
std::vector<int64_t> draw_lengths(const LengthModel& model, int64_t num_prompts,
                                  int64_t samples_per_prompt, double mean, int64_t cap,
                                  uint64_t seed);

// mu of the log-normal whose values, capped, have this mean.
double fit_log_mean(double log_sigma, double mean, double cap);

// The `default` entry of lengths.yaml (schema sim-lengths/1).
LengthModel load_length_model(const std::string& path);

}  // namespace keel::sim

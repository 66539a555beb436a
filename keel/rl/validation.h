// Validation: several answers for each held-out prompt, summarised under verl's names.
#pragma once

#include <span>
#include <string>

#include "keel/observe/step_record.h"
#include "keel/parallel/group.h"
#include "keel/rl/experience.h"

namespace keel::rl {

// For each data source: val-core/<source>/reward/{mean@N, best@N/mean, maj@N/mean} and
// val-aux/<source>/reward/{std@N, worst@N/mean, pass@k}. Answers of a row lie together, N each.
// maj@N scores the answer text given most often (the earliest on ties); pass@k is the unbiased
// estimator of Chen et al., 2021 (arXiv 2107.03374) with success = score > 0.5. Returns the mean
// score over all sources. answers: this rank's, of the rows of the whole validation set; the record
// is the same on all ranks.
double add_validation_metrics(parallel::Group& group, std::span<const Experience> answers,
                              std::span<const Row> rows, int64_t n, StepRecord& record);

// 1 - C(n - c, k) / C(n, k): the chance that k of n answers, c of them right, hold a right one.
double pass_at_k(int64_t n, int64_t c, int64_t k);

}  // namespace keel::rl

// Which stored tensors make up which parameter, decided from headers alone.
#pragma once

#include <string>
#include <vector>

#include "keel/spec/parameters.h"
#include "keel/spec/weight_files.h"

namespace keel {

// A stored tensor that fills part of a parameter.
struct ParamSource {
  StoredTensor stored;
  int64_t offset = 0;  // in elements of the parameter
};

struct Catalog {
  std::vector<ParamSpec> params;
  std::vector<std::vector<ParamSource>> sources;  // one list per parameter, by offset
  ExpertLayout expert_layout = ExpertLayout::kPerExpert;
  bool has_tied_head = false;  // the model is tied and lm_head.weight is stored all the same
};

// Kinds: missing_tensor, extra_tensor, wrong_shape, wrong_dtype, mixed_dtype, tied_conflict,
// duplicate_tensor, unsupported_value (quantised). Sources are complete if no finding is an error.
Catalog make_catalog(const ModelSpec& spec, const WeightFiles& weights,
                     std::vector<Finding>& findings);

// Reads every weight (slow: as fast as the disk). Kinds: nan_weight, inf_weight, zero_weight.
void check_weight_values(const Catalog& catalog, const WeightFiles& weights,
                         std::vector<Finding>& findings);

}  // namespace keel

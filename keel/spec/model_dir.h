// A Hugging Face model folder: checked completely from its JSON and tensor headers, then read
// through memory maps.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/spec/catalog.h"
#include "keel/spec/finding.h"
#include "keel/spec/model_spec.h"
#include "keel/spec/parameters.h"
#include "keel/spec/weight_files.h"

namespace keel {

struct CheckOptions {
  bool tokenizer = true;       // tokenizer.json, tokenizer_config.json, chat template
  bool weight_values = false;  // read all weights: NaN, infinity, all zero
};

// Everything that is wrong or odd in the folder; never throws for a wrong folder.
std::vector<Finding> check_model_dir(const std::string& folder, const CheckOptions& options = {});

// Config and weights, ready to be read. Thread-safe once made.
class ModelDir {
 public:
  // Throws FileError with the first error of config or weights. The tokenizer is not looked at.
  explicit ModelDir(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const ModelSpec& spec() const { return spec_; }
  const std::vector<ParamSpec>& params() const { return catalog_.params; }
  // How experts are stored, so that they can be saved in the same way.
  ExpertLayout expert_layout() const { return catalog_.expert_layout; }
  // The model is tied and the files have lm_head.weight all the same.
  bool has_tied_head() const { return catalog_.has_tied_head; }
  const std::vector<Finding>& warnings() const { return warnings_; }

  // dtype of the (first) stored tensor of params()[param].
  DType stored_dtype(size_t param) const;
  // params()[param] as float32; out has num_elements().
  void read_f32(size_t param, std::span<float> out) const;
  // The same in a floating dtype: bits are copied where it is the stored one, else rounded from
  // float32.
  void read(size_t param, DType dtype, std::span<std::byte> out) const;

 private:
  std::string folder_;
  ModelSpec spec_;
  WeightFiles weights_;
  Catalog catalog_;
  std::vector<Finding> warnings_;
};

}  // namespace keel

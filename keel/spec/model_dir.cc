#include "keel/spec/model_dir.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "keel/base/error.h"
#include "keel/io/half.h"
#include "keel/io/json_file.h"
#include "keel/spec/tokenizer_check.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

// config.json and generation_config.json. True if the result can be used.
bool read_spec(const std::string& folder, ModelSpec& spec, std::vector<Finding>& findings) {
  std::vector<Finding> own;
  const char* file = "config.json";
  try {
    spec = parse_model_spec(read_json_file(folder + "/" + file), own);
    const bool usable = !has_errors(own);
    file = "generation_config.json";
    if (usable && fs::exists(fs::path(folder) / file)) {
      apply_generation_config(read_json_file(folder + "/" + file), spec, own);
    }
    findings.insert(findings.end(), own.begin(), own.end());
    return usable;
  } catch (const FileError& e) {
    findings.insert(findings.end(), own.begin(), own.end());
    findings.push_back(finding_of(e, file));
    return std::string_view(file) != "config.json";
  }
}

bool is_folder(const std::string& folder, std::vector<Finding>& findings) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return true;
  findings.push_back({Level::kError, "missing_file", folder, "",
                      fs::exists(folder, ignored)
                          ? "expected a model folder, got a file; try: keel convert for GGUF files"
                          : "expected a model folder, got nothing there"});
  return false;
}

}  // namespace

std::vector<Finding> check_model_dir(const std::string& folder, const CheckOptions& options) {
  std::vector<Finding> findings;
  if (!is_folder(folder, findings)) return findings;
  ModelSpec spec;
  const bool usable = read_spec(folder, spec, findings);
  const WeightFiles weights = open_weight_files(folder, findings);
  if (!usable) return findings;
  if (weights.complete) {
    const Catalog catalog = make_catalog(spec, weights, findings);
    if (options.weight_values) check_weight_values(catalog, weights, findings);
  }
  if (options.tokenizer) check_tokenizer(folder, spec, findings);
  return findings;
}

ModelDir::ModelDir(const std::string& folder) : folder_(folder) {
  std::vector<Finding> findings;
  if (is_folder(folder, findings) && read_spec(folder, spec_, findings)) {
    weights_ = open_weight_files(folder, findings);
    if (weights_.complete) catalog_ = make_catalog(spec_, weights_, findings);
  }
  for (auto& f : findings) {  // name the folder: a run may open several models
    f.file = f.file.empty() ? folder : f.file == folder ? folder : folder + "/" + f.file;
  }
  throw_first_error(findings);
  warnings_ = std::move(findings);
}

DType ModelDir::stored_dtype(size_t param) const {
  return catalog_.sources.at(param).at(0).stored.tensor->dtype;
}

void ModelDir::read_f32(size_t param, std::span<float> out) const {
  read(param, DType::kF32, std::as_writable_bytes(out));
}

void ModelDir::read(size_t param, DType dtype, std::span<std::byte> out) const {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  KEEL_CHECK(out.size() == static_cast<size_t>(params().at(param).num_elements()) * size,
             "{} bytes for {}", out.size(), params()[param].name);
  std::vector<float> f32;
  for (const auto& source : catalog_.sources[param]) {
    const auto& t = *source.stored.tensor;
    const auto bytes = weights_.files[source.stored.file]->bytes(t);
    const size_t n = bytes.size() / static_cast<size_t>(dtype_bytes(t.dtype));
    const auto target = out.subspan(static_cast<size_t>(source.offset) * size, n * size);
    if (t.dtype == dtype) {
      std::memcpy(target.data(), bytes.data(), bytes.size());
      continue;
    }
    f32.resize(n);
    to_f32(t.dtype, bytes, f32);
    from_f32(dtype, f32, target);
  }
}

}  // namespace keel

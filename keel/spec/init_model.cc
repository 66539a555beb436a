#include "keel/spec/init_model.h"

#include <cmath>
#include <filesystem>
#include <numbers>
#include <string_view>

#include "keel/base/rng.h"
#include "keel/io/atomic_file.h"
#include "keel/io/atomic_folder.h"
#include "keel/io/json_file.h"
#include "keel/io/mapped_file.h"
#include "keel/spec/export.h"
#include "keel/spec/fields.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

uint64_t hash_name(std::string_view name) {
  uint64_t h = 0;
  for (const char c : name) h = mix_key(h, static_cast<unsigned char>(c));
  return h;
}

// Box-Muller on counter-based uniforms: two values per counter.
void fill_normal(uint64_t key, double deviation, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 2) {
    const double radius = deviation * std::sqrt(-2 * std::log(uniform(key, i, 0)));
    const double angle = 2 * std::numbers::pi * uniform(key, i, 1);
    out[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < out.size()) out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

void fill(const ParamSpec& param, uint64_t seed, double deviation, std::span<float> out) {
  if (param.shape.size() >= 2) {
    fill_normal(mix_key(seed, hash_name(param.name)), deviation, out);
  } else {
    std::ranges::fill(out, param.name.ends_with(".bias") ? 0.0f : 1.0f);
  }
}

void copy_tokenizer(const std::string& from, const std::string& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "chat_template.jinja", "generation_config.json"}) {
    const auto path = fs::path(from) / name;
    if (fs::exists(path)) {
      write_file_atomic(to + "/" + name, MappedFile(path.string()).bytes());
    } else if (std::string_view(name) == "tokenizer.json") {
      throw_file_error("missing_file", path.string(), "expected a tokenizer, got nothing");
    }
  }
}

}  // namespace

void init_model(const std::string& folder, const Json& config, uint64_t seed,
                const std::string& tokenizer_from) {
  std::vector<Finding> findings;
  const ModelSpec spec = parse_model_spec(config, findings);
  const double deviation =
      Fields(config, "config.json", findings).number("initializer_range", 0, 10, 0.02);
  throw_first_error(findings);
  AtomicFolder out(folder);
  const std::string& to = out.temporary_path();
  auto saved = config_json(spec);
  saved["initializer_range"] = deviation;
  write_json_file(to + "/config.json", saved);
  write_json_file(to + "/generation_config.json", generation_config_json(spec));
  if (!tokenizer_from.empty()) copy_tokenizer(tokenizer_from, to);
  ExportOptions options;
  options.dtype = spec.dtype;
  write_weights(to, spec, options, [&](size_t, const ParamSpec& param, std::span<float> values) {
    fill(param, seed, deviation, values);
  });
  out.commit();
}

}  // namespace keel

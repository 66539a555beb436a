#include "keel/spec/model_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "keel/spec/fields.h"

namespace keel {
namespace {

// Bounds keep every product of sizes (parameters, bytes) far from overflow.
constexpr int64_t kMaxHidden = 1 << 17;
constexpr int64_t kMaxIntermediate = 1 << 19;
constexpr int64_t kMaxLayers = 1000;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

struct FamilyRow {
  Family family;
  std::string_view name;
  std::string_view architecture;
};

constexpr std::array<FamilyRow, 4> kFamilies = {{
    {Family::kLlama, "llama", "LlamaForCausalLM"},
    {Family::kQwen2, "qwen2", "Qwen2ForCausalLM"},
    {Family::kQwen3, "qwen3", "Qwen3ForCausalLM"},
    {Family::kQwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM"},
}};

const FamilyRow& family_row(Family family) {
  return *std::ranges::find_if(kFamilies, [&](const auto& r) { return r.family == family; });
}

template <class Field>
std::string list_of(Field field) {
  std::string out;
  for (const auto& r : kFamilies) out += (out.empty() ? "" : ", ") + std::string(r.*field);
  return out;
}

// Family from model_type, checked against architectures. nullopt after a finding.
std::optional<Family> read_family(const Json& config, Fields& fields) {
  const std::string type = fields.text("model_type", "");
  const auto family = family_from_name(type);
  const Json* architectures = fields.get("architectures");
  if (architectures != nullptr) {
    const bool one =
        architectures->is_array() && architectures->size() == 1 && (*architectures)[0].is_string();
    const bool known = one && std::ranges::any_of(kFamilies, [&](const auto& r) {
                         return (*architectures)[0] == std::string(r.architecture) &&
                                (!family || r.family == *family);
                       });
    if (!known) {
      fields.error("unsupported_model", "architectures",
                   fmt::format("expected one of {} that fits model_type '{}', got {}",
                               list_of(&FamilyRow::architecture), type, brief(*architectures)));
      return std::nullopt;
    }
  }
  if (family) return family;
  if (!config.contains("model_type")) {
    fields.error("missing_field", "model_type",
                 fmt::format("expected one of {}, got nothing", list_of(&FamilyRow::name)));
  } else {
    fields.error("unsupported_model", "model_type",
                 fmt::format("expected one of {}, got '{}'", list_of(&FamilyRow::name), type));
  }
  return std::nullopt;
}

void read_sizes(Fields& f, ModelSpec& s) {
  s.hidden = f.integer("hidden_size", 1, kMaxHidden);
  s.layers = f.integer("num_hidden_layers", 1, kMaxLayers);
  s.heads = f.integer("num_attention_heads", 1, kMaxHeads);
  s.intermediate = f.integer("intermediate_size", 1, kMaxIntermediate);
  s.vocab = f.integer("vocab_size", 1, kMaxVocab);
  s.max_positions = f.integer("max_position_embeddings", 1, kMaxPositions, 32768);
  s.rms_eps = f.number("rms_norm_eps", 0, 1, 1e-6);
  s.tied = f.boolean("tie_word_embeddings", false);
  // Old llama configurations have no key-value heads; the Qwen classes would assume 32.
  const auto kv_default = s.family == Family::kLlama ? std::optional(s.heads) : std::nullopt;
  s.kv_heads = f.integer("num_key_value_heads", 1, kMaxHeads, kv_default);
  if (s.heads % s.kv_heads != 0) {
    f.error(
        "bad_value", "num_key_value_heads",
        fmt::format("expected a divisor of num_attention_heads {}, got {}", s.heads, s.kv_heads));
  }
  const bool divides = s.hidden % s.heads == 0;
  const int64_t head_dim_default = s.family == Family::kQwen3 ? 128 : s.hidden / s.heads;
  if (!f.has("head_dim") && s.family != Family::kQwen3 && !divides) {
    f.error("bad_value", "num_attention_heads",
            fmt::format("expected a divisor of hidden_size {} (there is no head_dim), got {}",
                        s.hidden, s.heads));
  }
  s.head_dim = f.integer("head_dim", 2, kMaxHeadDim, head_dim_default);
  if (s.head_dim % 2 != 0) {
    f.error("bad_value", "head_dim",
            fmt::format("expected an even number (rotary pairs), got {}", s.head_dim));
  }
}

void refuse(Fields& f, const std::string& key, bool wrong, const std::string& expected) {
  if (!wrong) return;
  f.error("unsupported_value", key,
          fmt::format("expected {}, got {}; try: another model", expected, brief(*f.get(key))));
}

bool sliding_window_active(Fields& f, const ModelSpec& s) {
  if (s.family == Family::kLlama || !f.boolean("use_sliding_window", false)) return false;
  return f.has("sliding_window") && (s.family == Family::kQwen3Moe ||
                                     f.integer("max_window_layers", 0, kMaxLayers, 28) < s.layers);
}

// Variants that the engine does not compute.
void refuse_variants(Fields& f, const ModelSpec& s) {
  const auto act = f.text("hidden_act", "silu");
  refuse(f, "hidden_act", act != "silu" && act != "swish", "silu");
  if (s.family != Family::kQwen2) {
    refuse(f, "attention_bias", f.boolean("attention_bias", false), "false");
  }
  refuse(f, "mlp_bias", f.boolean("mlp_bias", false), "false");
  refuse(f, "quantization_config", f.has("quantization_config"), "unquantised weights");
  refuse(f, "partial_rotary_factor", f.number("partial_rotary_factor", 0, 1, 1.0) != 1.0, "1");
  const Json* types = f.get("layer_types");
  if (types != nullptr) {
    const bool full = types->is_array() && std::ranges::all_of(*types, [](const Json& t) {
                        return t == "full_attention";
                      });
    refuse(f, "layer_types", !full, "full_attention in every layer");
  } else {
    refuse(f, "sliding_window", sliding_window_active(f, s), "full attention (no sliding window)");
  }
}

RopeSpec read_rope(Fields& top, std::vector<Finding>& findings) {
  RopeSpec rope;
  const std::string key = top.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json* block = top.get(key);
  rope.theta = top.number("rope_theta", 0, 1e15, 10000.0);
  if (block == nullptr) return rope;
  if (!block->is_object()) {
    top.error("wrong_type", key, fmt::format("expected an object, got {}", brief(*block)));
    return rope;
  }
  Json named = Json::object();  // findings name the field as "rope_scaling.factor"
  for (const auto& [name, value] : block->items()) named[key + "." + name] = value;
  Fields f(named, "config.json", findings);
  const auto at = [&](const char* name) { return key + "." + name; };
  rope.theta = f.number(at("rope_theta"), 0, 1e15, rope.theta);
  const std::string type = f.text(at("rope_type"), f.text(at("type"), "default"));
  if (type == "llama3") {
    rope.type = RopeSpec::Type::kLlama3;
    rope.factor = f.number(at("factor"), 0, 1e6);
    rope.low_freq_factor = f.number(at("low_freq_factor"), 0, 1e6);
    rope.high_freq_factor = f.number(at("high_freq_factor"), 0, 1e6);
    rope.original_max_position_embeddings =
        f.integer(at("original_max_position_embeddings"), 1, kMaxPositions);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      f.error("bad_value", at("high_freq_factor"),
              fmt::format("expected above low_freq_factor {}, got {}", rope.low_freq_factor,
                          rope.high_freq_factor));
    }
  } else if (type != "default") {
    f.error("unsupported_value", at("rope_type"),
            fmt::format("expected default or llama3, got '{}'", type));
  }
  if (named.contains(at("partial_rotary_factor"))) {
    refuse(f, at("partial_rotary_factor"), f.number(at("partial_rotary_factor"), 0, 1, 1.0) != 1.0,
           "1");
  }
  return rope;
}

MoeSpec read_moe(Fields& f) {
  MoeSpec m;
  const char* key =
      f.has("num_local_experts") && !f.has("num_experts") ? "num_local_experts" : "num_experts";
  m.num_experts = f.integer(key, 1, kMaxExperts);
  m.top_k = f.integer("num_experts_per_tok", 1, kMaxExperts);
  m.intermediate = f.integer("moe_intermediate_size", 1, kMaxIntermediate);
  m.norm_topk_prob = f.boolean("norm_topk_prob", false);
  m.sparse_step = f.integer("decoder_sparse_step", 1, kMaxLayers, 1);
  m.mlp_only = f.integers("mlp_only_layers", 0, kMaxLayers);
  m.aux_loss_coef = f.number("router_aux_loss_coef", -1e-300, 1e6, 0.001);
  if (m.top_k > m.num_experts) {
    f.error("bad_value", "num_experts_per_tok",
            fmt::format("expected at most {} = {}, got {}", key, m.num_experts, m.top_k));
  }
  return m;
}

DType read_dtype(Fields& f) {
  const char* key = f.has("dtype") ? "dtype" : "torch_dtype";
  const std::string text = f.text(key, "float32");
  const auto dtype = dtype_from_torch_name(text);
  if (dtype && *dtype != DType::kF64) return *dtype;
  f.error("unsupported_value", key,
          fmt::format("expected float32, bfloat16 or float16, got '{}'", text));
  return DType::kF32;
}

std::optional<int64_t> first_id(Fields& f, const std::string& key, int64_t vocab) {
  const auto ids = f.token_ids(key, vocab);
  return ids.empty() ? std::nullopt : std::optional(ids[0]);
}

}  // namespace

std::string_view family_name(Family family) { return family_row(family).name; }

std::optional<Family> family_from_name(std::string_view name) {
  for (const auto& r : kFamilies) {
    if (r.name == name) return r.family;
  }
  return std::nullopt;
}

bool ModelSpec::is_moe_layer(int64_t layer) const {
  return moe.num_experts > 0 && (layer + 1) % moe.sparse_step == 0 &&
         std::ranges::find(moe.mlp_only, layer) == moe.mlp_only.end();
}

bool ModelSpec::has_moe_layers() const {
  for (int64_t i = 0; i < layers; ++i) {
    if (is_moe_layer(i)) return true;
  }
  return false;
}

ModelSpec parse_model_spec(const Json& config, std::vector<Finding>& findings) {
  ModelSpec s;
  Fields f(config, "config.json", findings);
  if (!config.is_object()) {
    f.error("wrong_type", "", fmt::format("expected a JSON object, got {}", brief(config)));
    return s;
  }
  const auto family = read_family(config, f);
  if (!family) return s;
  s.family = *family;
  s.qkv_bias = s.family == Family::kQwen2;
  s.qk_norm = s.family == Family::kQwen3 || s.family == Family::kQwen3Moe;
  read_sizes(f, s);
  refuse_variants(f, s);
  s.rope = read_rope(f, findings);
  if (s.family == Family::kQwen3Moe) s.moe = read_moe(f);
  s.dtype = read_dtype(f);
  s.bos_id = first_id(f, "bos_token_id", s.vocab);
  s.pad_id = first_id(f, "pad_token_id", s.vocab);
  s.eos_ids = f.token_ids("eos_token_id", s.vocab);
  return s;
}

void apply_generation_config(const Json& generation, ModelSpec& spec,
                             std::vector<Finding>& findings) {
  Fields f(generation, "generation_config.json", findings);
  if (!generation.is_object()) {
    f.error("wrong_type", "", fmt::format("expected a JSON object, got {}", brief(generation)));
    return;
  }
  if (f.has("eos_token_id")) spec.eos_ids = f.token_ids("eos_token_id", spec.vocab);
  if (f.has("bos_token_id")) spec.bos_id = first_id(f, "bos_token_id", spec.vocab);
  if (f.has("pad_token_id")) spec.pad_id = first_id(f, "pad_token_id", spec.vocab);
}

ModelSpec model_spec_from_json(const Json& config) {
  std::vector<Finding> findings;
  ModelSpec s = parse_model_spec(config, findings);
  throw_first_error(findings);
  return s;
}

OrderedJson config_json(const ModelSpec& s) {
  const auto& row = family_row(s.family);
  OrderedJson j;
  j["architectures"] = {std::string(row.architecture)};
  j["model_type"] = std::string(row.name);
  j["vocab_size"] = s.vocab;
  j["hidden_size"] = s.hidden;
  j["intermediate_size"] = s.intermediate;
  j["num_hidden_layers"] = s.layers;
  j["num_attention_heads"] = s.heads;
  j["num_key_value_heads"] = s.kv_heads;
  j["head_dim"] = s.head_dim;
  j["hidden_act"] = "silu";
  j["max_position_embeddings"] = s.max_positions;
  j["rms_norm_eps"] = s.rms_eps;
  j["rope_theta"] = s.rope.theta;
  j["rope_scaling"] = nullptr;
  if (s.rope.type == RopeSpec::Type::kLlama3) {
    j["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", s.rope.factor},
        {"low_freq_factor", s.rope.low_freq_factor},
        {"high_freq_factor", s.rope.high_freq_factor},
        {"original_max_position_embeddings", s.rope.original_max_position_embeddings}};
  }
  j["tie_word_embeddings"] = s.tied;
  if (s.family != Family::kQwen2) j["attention_bias"] = false;
  if (s.family != Family::kLlama) j["use_sliding_window"] = false;
  if (s.family == Family::kQwen3Moe) {
    j["num_experts"] = s.moe.num_experts;
    j["num_experts_per_tok"] = s.moe.top_k;
    j["moe_intermediate_size"] = s.moe.intermediate;
    j["norm_topk_prob"] = s.moe.norm_topk_prob;
    j["decoder_sparse_step"] = s.moe.sparse_step;
    j["mlp_only_layers"] = s.moe.mlp_only;
    j["router_aux_loss_coef"] = s.moe.aux_loss_coef;
  }
  j["initializer_range"] = 0.02;
  j["torch_dtype"] = std::string(dtype_torch_name(s.dtype));
  if (s.bos_id) j["bos_token_id"] = *s.bos_id;
  if (s.pad_id) j["pad_token_id"] = *s.pad_id;
  if (s.eos_ids.size() == 1) j["eos_token_id"] = s.eos_ids[0];
  if (s.eos_ids.size() > 1) j["eos_token_id"] = s.eos_ids;
  return j;
}

OrderedJson generation_config_json(const ModelSpec& s) {
  OrderedJson j = OrderedJson::object();
  if (s.bos_id) j["bos_token_id"] = *s.bos_id;
  if (!s.eos_ids.empty()) j["eos_token_id"] = s.eos_ids;
  if (s.pad_id) j["pad_token_id"] = *s.pad_id;
  return j;
}

std::vector<float> inv_freq(const ModelSpec& spec) {
  const int64_t half = spec.head_dim / 2;
  std::vector<float> out(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    // Each step rounds to float32 where torch's does.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.head_dim);
    const float power =
        static_cast<float>(std::pow(spec.rope.theta, static_cast<double>(exponent)));
    out[static_cast<size_t>(i)] = 1.0f / power;
  }
  if (spec.rope.type == RopeSpec::Type::kDefault) return out;

  const auto old_length = static_cast<double>(spec.rope.original_max_position_embeddings);
  const auto factor = static_cast<float>(spec.rope.factor);
  const auto low = static_cast<float>(spec.rope.low_freq_factor);
  const auto span = static_cast<float>(spec.rope.high_freq_factor - spec.rope.low_freq_factor);
  const auto low_wavelength = static_cast<float>(old_length / spec.rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(old_length / spec.rope.high_freq_factor);
  for (float& f : out) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
    if (wavelength < high_wavelength) continue;
    if (wavelength > low_wavelength) {
      f = f / factor;
      continue;
    }
    const float smooth = (static_cast<float>(old_length) / wavelength - low) / span;
    f = (1.0f - smooth) * f / factor + smooth * f;
  }
  return out;
}

}  // namespace keel

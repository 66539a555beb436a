#include "keel/spec/gguf_convert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "keel/base/error.h"
#include "keel/io/atomic_folder.h"
#include "keel/io/json_file.h"
#include "keel/io/safetensors.h"
#include "keel/spec/export.h"
#include "keel/spec/model_dir.h"

namespace keel {
namespace {

// GGUF stores float32; the shortest decimal that gives it back is what the author wrote (1e-05).
double as_written(double stored) {
  return std::strtod(fmt::format("{}", static_cast<float>(stored)).c_str(), nullptr);
}

Family read_family(const GgufFile& gguf) {
  const std::string name = gguf.text("general.architecture");
  if (name == "qwen3moe") return Family::kQwen3Moe;
  const auto family = family_from_name(name);
  if (!family || *family == Family::kQwen3Moe) {
    throw_file_error("unsupported_model", gguf.path() + ": general.architecture",
                     "expected llama, qwen2, qwen3 or qwen3moe, got '{}'", name);
  }
  return *family;
}

// Llama 3.1 and later: GGUF keeps only the divisor of each frequency. All published models use
// these parameters; the factor is the largest divisor. Anything else is refused.
void read_rope_factors(const GgufFile& gguf, ModelSpec& s) {
  const auto* tensor = gguf.find("rope_freqs.weight");
  if (tensor == nullptr) return;
  const std::string where = gguf.path() + ": rope_freqs.weight";
  if (tensor->shape != std::vector<int64_t>{s.head_dim / 2}) {
    throw_file_error("wrong_shape", where, "expected [{}], got {}", s.head_dim / 2,
                     shape_text(tensor->shape));
  }
  std::vector<float> divisors(static_cast<size_t>(s.head_dim / 2));
  gguf.read_f32(*tensor, divisors);
  const auto plain = inv_freq(s);
  s.rope.type = RopeSpec::Type::kLlama3;
  s.rope.factor = *std::ranges::max_element(divisors);
  s.rope.low_freq_factor = 1;
  s.rope.high_freq_factor = 4;
  s.rope.original_max_position_embeddings = 8192;
  const auto scaled = inv_freq(s);
  for (size_t i = 0; i < plain.size(); ++i) {
    if (!(std::abs(plain[i] / divisors[i] - scaled[i]) <= 1e-3f * scaled[i])) {
      throw_file_error("unsupported_value", where,
                       "expected Llama 3 scaling (1, 4, 8192), got other rotary factors");
    }
  }
}

void read_rope(const GgufFile& gguf, const std::string& prefix, ModelSpec& s) {
  s.rope.theta = as_written(gguf.number(prefix + "rope.freq_base", 10000.0));
  const auto scaling = gguf.text(prefix + "rope.scaling.type", "none");
  if (scaling != "none") {
    throw_file_error("unsupported_value", gguf.path() + ": " + prefix + "rope.scaling.type",
                     "expected none, got '{}'", scaling);
  }
  const int64_t rotary = gguf.integer(prefix + "rope.dimension_count", s.head_dim);
  if (rotary != s.head_dim) {
    throw_file_error("unsupported_value", gguf.path() + ": " + prefix + "rope.dimension_count",
                     "expected the head size {}, got {}", s.head_dim, rotary);
  }
  read_rope_factors(gguf, s);
}

std::optional<int64_t> optional_id(const GgufFile& gguf, const std::string& key) {
  if (!gguf.has(key)) return std::nullopt;
  return gguf.integer(key);
}

void read_token_ids(const GgufFile& gguf, ModelSpec& s) {
  s.bos_id = optional_id(gguf, "tokenizer.ggml.bos_token_id");
  s.pad_id = optional_id(gguf, "tokenizer.ggml.padding_token_id");
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const auto id = optional_id(gguf, key);
    if (id && std::ranges::find(s.eos_ids, *id) == s.eos_ids.end()) s.eos_ids.push_back(*id);
  }
}

// Hugging Face name -> GGUF name.
std::string gguf_name(const ParamSpec& p, const std::string& piece) {
  switch (p.role) {
    case ParamRole::kEmbedding:
      return "token_embd.weight";
    case ParamRole::kFinalNorm:
      return "output_norm.weight";
    case ParamRole::kHead:
      return "output.weight";
    default:
      break;
  }
  static constexpr std::array<std::pair<ParamRole, std::string_view>, 17> kNames = {{
      {ParamRole::kInputNorm, "attn_norm.weight"},
      {ParamRole::kQ, "attn_q.weight"},
      {ParamRole::kQBias, "attn_q.bias"},
      {ParamRole::kK, "attn_k.weight"},
      {ParamRole::kKBias, "attn_k.bias"},
      {ParamRole::kV, "attn_v.weight"},
      {ParamRole::kVBias, "attn_v.bias"},
      {ParamRole::kQNorm, "attn_q_norm.weight"},
      {ParamRole::kKNorm, "attn_k_norm.weight"},
      {ParamRole::kO, "attn_output.weight"},
      {ParamRole::kPostAttentionNorm, "ffn_norm.weight"},
      {ParamRole::kGate, "ffn_gate.weight"},
      {ParamRole::kUp, "ffn_up.weight"},
      {ParamRole::kDown, "ffn_down.weight"},
      {ParamRole::kRouter, "ffn_gate_inp.weight"},
      {ParamRole::kExpertDown, "ffn_down_exps.weight"},
      {ParamRole::kExpertGateUp, ""},
  }};
  const auto row = std::ranges::find(kNames, p.role, [](const auto& r) { return r.first; });
  KEEL_CHECK(row != kNames.end(), "no GGUF name for {}", p.name);
  return fmt::format("blk.{}.{}", p.layer, row->second.empty() ? piece : std::string(row->second));
}

// The converter to GGUF reorders each head's rows of q and k from halves (0, d/2, 1, d/2+1, ...):
// row 2j + t holds what transformers has in row t * d/2 + j. This puts them back.
void undo_rotary_order(int64_t head_dim, int64_t columns, std::span<float> values) {
  const auto block = static_cast<size_t>(head_dim * columns);
  const auto half = static_cast<size_t>(head_dim / 2), row = static_cast<size_t>(columns);
  std::vector<float> copy(block);
  for (size_t head = 0; head < values.size() / block; ++head) {
    float* out = values.data() + head * block;
    std::copy_n(out, block, copy.data());
    for (size_t r = 0; r < 2 * half; ++r) {
      std::copy_n(copy.data() + r * row, row, out + (r % 2 * half + r / 2) * row);
    }
  }
}

class WeightReader {
 public:
  WeightReader(const GgufFile& gguf, const ModelSpec& spec) : gguf_(gguf), spec_(spec) {}

  void read(const ParamSpec& p, std::span<float> out) const {
    if (p.role == ParamRole::kExpertGateUp) return read_gate_up(p, out);
    gguf_.read_f32(*checked(gguf_name(p, ""), p.shape), out);
    const bool is_rotary = p.role == ParamRole::kQ || p.role == ParamRole::kK;
    if (is_rotary && spec_.family == Family::kLlama) {
      undo_rotary_order(spec_.head_dim, p.shape[1], out);
    }
  }

  // Before anything is written: every tensor is there with its shape.
  void check_all() const {
    for (const auto& p : parameters(spec_)) {
      if (p.role == ParamRole::kExpertGateUp) {
        const std::vector<int64_t> half = {p.shape[0], p.shape[1] / 2, p.shape[2]};
        for (const char* name : {"ffn_gate_exps.weight", "ffn_up_exps.weight"}) {
          checked(gguf_name(p, name), half);
        }
      } else {
        checked(gguf_name(p, ""), p.shape);
      }
    }
  }

 private:
  const GgufTensor* checked(const std::string& name, const std::vector<int64_t>& shape) const {
    const auto* tensor = gguf_.find(name);
    const std::string where = gguf_.path() + ": " + name;
    if (tensor == nullptr) throw_file_error("missing_tensor", where, "expected it, got nothing");
    if (tensor->shape != shape) {
      throw_file_error("wrong_shape", where, "expected {}, got {}", shape_text(shape),
                       shape_text(tensor->shape));
    }
    return tensor;
  }

  // GGUF keeps gate [E, I, H] and up [E, I, H] apart; the parameter interleaves them per expert.
  void read_gate_up(const ParamSpec& p, std::span<float> out) const {
    const int64_t experts = p.shape[0], half = p.shape[1] / 2 * p.shape[2];
    size_t at = 0;
    for (const char* name : {"ffn_gate_exps.weight", "ffn_up_exps.weight"}) {
      const auto* tensor = gguf_.find(gguf_name(p, name));
      for (int64_t e = 0; e < experts; ++e) {
        const auto target = static_cast<size_t>(2 * e * half) + at;
        gguf_.read_f32(*tensor, e * half, out.subspan(target, static_cast<size_t>(half)));
      }
      at += static_cast<size_t>(half);
    }
  }

  const GgufFile& gguf_;
  const ModelSpec& spec_;
};

}  // namespace

ModelSpec spec_of_gguf(const GgufFile& gguf) {
  ModelSpec s;
  s.family = read_family(gguf);
  const std::string prefix = gguf.text("general.architecture") + ".";
  const auto integer = [&](const char* key, std::optional<int64_t> fallback = std::nullopt) {
    return gguf.integer(prefix + key, fallback);
  };
  s.hidden = integer("embedding_length");
  s.layers = integer("block_count");
  s.heads = integer("attention.head_count");
  s.kv_heads = integer("attention.head_count_kv", s.heads);
  s.head_dim = integer("attention.key_length", s.heads > 0 ? s.hidden / s.heads : 0);
  s.intermediate = integer("feed_forward_length", integer("expert_feed_forward_length", 0));
  s.max_positions = integer("context_length", 32768);
  s.rms_eps = as_written(gguf.number(prefix + "attention.layer_norm_rms_epsilon"));
  const auto* embedding = gguf.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    throw_file_error("missing_tensor", gguf.path() + ": token_embd.weight",
                     "expected [vocabulary, hidden], got nothing of that shape");
  }
  s.vocab = embedding->shape[0];
  s.tied = gguf.find("output.weight") == nullptr;
  s.qkv_bias = s.family == Family::kQwen2;
  s.qk_norm = s.family == Family::kQwen3 || s.family == Family::kQwen3Moe;
  if (s.family == Family::kQwen3Moe) {
    s.moe.num_experts = integer("expert_count");
    s.moe.top_k = integer("expert_used_count");
    s.moe.intermediate = integer("expert_feed_forward_length");
    s.moe.norm_topk_prob = true;
    s.moe.aux_loss_coef = 0.001;
  }
  read_token_ids(gguf, s);
  // The same rules as for any config.json, with the same messages, before sizes are used.
  model_spec_from_json(Json::parse(config_json(s).dump()));
  read_rope(gguf, prefix, s);
  return model_spec_from_json(Json::parse(config_json(s).dump()));
}

void convert_gguf(const std::string& gguf_path, const std::string& folder, DType dtype,
                  const ConvertProgress& progress) {
  const GgufFile gguf(gguf_path);
  ModelSpec spec = spec_of_gguf(gguf);
  spec.dtype = dtype;
  const WeightReader reader(gguf, spec);
  reader.check_all();
  const auto report = [&](double fraction, const char* stage) {
    if (progress) progress(fraction, stage);
  };
  AtomicFolder out(folder);
  const std::string& to = out.temporary_path();
  report(0, "tokenizer");
  write_json_file(to + "/config.json", config_json(spec));
  write_json_file(to + "/generation_config.json", generation_config_json(spec));
  write_json_file(to + "/tokenizer.json", tokenizer_json_of_gguf(gguf));
  write_json_file(to + "/tokenizer_config.json", tokenizer_config_of_gguf(gguf));
  const auto total = static_cast<double>(num_parameters(spec));
  double done = 0;
  ExportOptions options;
  options.dtype = dtype;
  write_weights(to, spec, options, [&](size_t, const ParamSpec& p, std::span<float> values) {
    reader.read(p, values);
    done += static_cast<double>(values.size());
    report(done / total, "weights");
  });
  // A broken template does not make the model useless; everything else does.
  auto findings = check_model_dir(to);
  std::erase_if(findings, [](const Finding& f) { return f.kind == "bad_template"; });
  throw_first_error(findings);
  out.commit();
}

}  // namespace keel

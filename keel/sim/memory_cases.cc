#include "keel/sim/memory_cases.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "keel/base/error.h"
#include "keel/sim/hardware.h"
#include "keel/sim/input/fields.h"
#include "keel/sim/memory.h"

namespace keel::sim {
namespace {

constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;
constexpr const char* kTexts[] = {"model",     "dtype",     "head_replication",
                                  "precision", "recompute", "weights",
                                  "gradients", "optimizer", "method"};
constexpr const char* kFlags[] = {"offload_optimizer", "offload_params", "zero_init",
                                  "fused_sparse_attention", "lora"};
constexpr const char* kNumbers[] = {"tp",
                                    "ep",
                                    "pp",
                                    "cp",
                                    "vp",
                                    "dp",
                                    "etp",
                                    "tokens",
                                    "blocks",
                                    "block_tokens",
                                    "bytes_per_token",
                                    "bytes",
                                    "seq",
                                    "mib_per_layer",
                                    "layers_on_device",
                                    "layers_in_flight",
                                    "rows",
                                    "hidden",
                                    "moe_ffn",
                                    "bytes_per_row",
                                    "params",
                                    "devices",
                                    "largest_layer_params",
                                    "buffer_factor",
                                    "experts",
                                    "micro_batch",
                                    "devices_per_node",
                                    "bytes_per_param",
                                    "global_batch",
                                    "batch",
                                    "tokens_per_s",
                                    "bytes_per_expert_w1_gb",
                                    "input_len",
                                    "output_len",
                                    "lora_rank"};

using Values = std::map<std::string, double>;

// One case with the shorthands that its kinds share.
struct Question {
  const MemoryCase& given;
  const Catalog& catalog;
  const Calibration& calibration;

  double number(const std::string& key, double fallback) const {
    const auto it = given.numbers.find(key);
    return it == given.numbers.end() ? fallback : it->second;
  }
  double need(const std::string& key) const {
    const auto it = given.numbers.find(key);
    KEEL_REQUIRE(it != given.numbers.end(), "[{}:{} {} inputs.{}] expected a number, got nothing",
                 given.file, given.line, given.id, key);
    return it->second;
  }
  bool flag(const std::string& key) const {
    const auto it = given.flags.find(key);
    return it != given.flags.end() && it->second;
  }
  std::string text(const std::string& key) const {
    const auto it = given.texts.find(key);
    return it == given.texts.end() ? "" : it->second;
  }
  const TwinModel& model() const { return catalog.find_model(text("model")); }
  balance::Layout layout() const {
    balance::Layout l;
    const auto degree = [&](const char* key) { return static_cast<int32_t>(number(key, 1)); };
    l.tp = degree("tp");
    l.pp = degree("pp");
    l.cp = degree("cp");
    l.ep = degree("ep");
    l.etp = degree("etp");
    const double inner = static_cast<double>(l.tp) * l.pp * l.cp;
    l.dp = static_cast<int32_t>(number("dp", std::max(1.0, number("devices", inner) / inner)));
    return l;
  }
};

Values rollout_weights(const Question& q) {
  const auto r = rank_params(q.model(), q.layout());
  const double b = dtype_bytes(q.text("dtype"));
  return {{"embedding_and_head", b * r.embedding_and_head},
          {"qkv", b * r.qkv},
          {"o", b * r.o},
          {"ffn", b * r.ffn},
          {"moe", b * r.experts},
          {"router", b * r.router},
          {"total", b * r.total()}};
}

double kv_per_token(const Question& q) {
  return kv_bytes_per_token(q.model(), q.layout().tp, dtype_bytes(q.text("dtype")));
}

Values activation(const Question& q) {
  const auto& m = q.model();
  const double seq = q.need("seq");
  const auto balanced =
      layer_activation(m, q.layout(), seq, static_cast<double>(m.topk), true, false);
  const auto worst =
      layer_activation(m, q.layout(), seq, static_cast<double>(m.experts), true, false);
  Values v = {{"attention", balanced.attention_part()},
              {"qkvo", balanced.qkvo},
              {"fa", balanced.attention},
              {"norm", balanced.norm},
              {"add", balanced.add},
              {"moe_balanced", balanced.moe_part()},
              {"moe_worst", worst.moe_part()},
              {"dispatch_balanced", balanced.dispatch},
              {"dispatch_worst", worst.dispatch},
              {"gmm1_balanced", balanced.gmm1},
              {"gmm1_worst", worst.gmm1},
              {"swiglu_balanced", balanced.activation},
              {"swiglu_worst", worst.activation},
              {"combine", balanced.combine},
              {"moe_add", balanced.moe_add}};
  for (auto& [name, bytes] : v) bytes /= kMiB;
  return v;
}

Values train_static(const Question& q) {
  const auto& m = q.model();
  const auto layers = static_cast<int64_t>(q.need("layers_on_device"));
  // As published: projections and experts of the layers, without router, norms and tables.
  const auto r = rank_params(m, q.layout(), 0, std::min(layers, m.layers), false, false);
  const double params = r.qkv + r.o + r.ffn + r.experts;
  const double weights = params * dtype_bytes(q.text("weights")) / kGiB;
  const double gradients = params * dtype_bytes(q.text("gradients")) / kGiB;
  return {{"weights_gb", weights},
          {"gradients_gb", gradients},
          {"total_gb", weights + gradients},
          {"per_layer_mib", weights * 1024 / static_cast<double>(layers)},
          {"with_rollout_leftover_gb", weights + gradients + q.number("rollout_leftover_gb", 0)}};
}

Values zero_estimate(const Question& q) {
  const auto e = zero3_estimate(
      q.need("params"), q.need("largest_layer_params"), static_cast<int64_t>(q.need("devices")),
      static_cast<int64_t>(q.need("devices_per_node")), q.flag("offload_optimizer"),
      q.flag("offload_params"), q.number("buffer_factor", 1.5), q.flag("zero_init"));
  return {{"gpu", e.device_bytes}, {"cpu", e.host_bytes}};
}

Values train_peak(const Question& q) {
  if (!q.catalog.models.contains(q.text("model"))) return {};  // a cut-down model without layout
  const auto& m = q.model();
  TrainMemorySettings s;
  s.layout = q.layout();
  s.virtual_stages = static_cast<int64_t>(q.number("vp", 1));
  const double micro = q.number("micro_batch", 1);
  s.micro_batch_tokens = q.number("seq", 4096) * micro;
  s.micro_batches = static_cast<int64_t>(
      std::max(1.0, q.number("global_batch", s.layout.pp * s.layout.dp) / (micro * s.layout.dp)));
  std::tie(s.recompute, s.recompute_layers) = parse_recompute(q.text("recompute"));
  s.zero_stage = 1;
  s.keeps_logits = true;
  s.fused_loss = !q.flag("lora");  // fine-tuning recipes use the plain loss
  s.lora_rank = q.flag("lora") ? static_cast<int64_t>(q.number("lora_rank", 32)) : 0;
  const Coefficients c(q.calibration, "", "", "megatron", "");
  const double unit = q.given.unit.starts_with("GiB") ? kGiB : 1e9;
  const auto peak = [&] { return largest_stage(train_memory(m, s, c)).total() / unit; };
  Values v = {{"", peak()}, {"baseline", peak()}};
  s.lora_gathers_inputs = false;
  v["input_regather"] = peak();
  return v;
}

using Answer = std::function<Values(const Question&)>;

const std::map<std::string, Answer>& answers() {
  static const std::map<std::string, Answer> kAnswers = {
      {"rollout_weights_per_device", rollout_weights},
      {"kv_bytes_per_token_per_device",
       [](const Question& q) {
         return Values{{"", kv_per_token(q)}};
       }},
      {"kv_bytes",
       [](const Question& q) {
         return Values{{"", kv_per_token(q) * q.need("tokens")}};
       }},
      {"kv_capacity_tokens",
       [](const Question& q) {
         return Values{{"", q.need("blocks") * q.need("block_tokens")}};
       }},
      {"activation_mib_per_layer", activation},
      {"train_static_per_device", train_static},
      {"train_activation_first_stage",
       [](const Question& q) {
         return Values{{"", q.need("mib_per_layer") * q.need("layers_in_flight") / 1024}};
       }},
      {"moe_prefill_peak",
       [](const Question& q) {
         TwinModel m;
         m.hidden = static_cast<int64_t>(q.need("hidden"));
         m.moe_ffn = static_cast<int64_t>(q.need("moe_ffn"));
         return Values{{"", q.need("rows") * moe_row_bytes(m)}};
       }},
      {"deepspeed_zero3_estimate", zero_estimate},
      {"total_weight_bytes",
       [](const Question& q) {
         return Values{{"", 2 * static_cast<double>(total_params(q.model()))}};
       }},
      {"total_bytes",
       [](const Question& q) {
         return Values{{"", q.need("params") * q.need("bytes_per_param")}};
       }},
      {"train_peak_per_device", train_peak},
      {"reshard_extra_per_device",
       [](const Question& q) {
         return Values{{"", q.need("experts") * q.need("bytes_per_expert_w1_gb")}};
       }},
      {"inference_peak", [](const Question& q) {
         const double tokens = q.number("batch", 1) * (q.need("input_len") + q.need("output_len"));
         const auto devices = static_cast<int64_t>(q.number("devices", 1));
         return Values{{"", inference_bytes(q.model(), devices, q.text("dtype"), tokens) / kMiB}};
       }}};
  return kAnswers;
}

MemoryCase read_case(MapReader& in, const std::string& file) {
  MemoryCase c;
  c.file = file;
  c.line = in.line();
  for (const char* key : {"id", "kind", "inputs", "expected"}) in.require(key);
  in.read("id", c.id);
  in.read("kind", c.kind);
  in.read("unit", c.unit);
  in.read("confidence", c.confidence);
  in.read("tolerance", c.tolerance);
  if (!c.kind.empty() && !answers().contains(c.kind)) {
    std::vector<std::string> kinds;
    for (const auto& [kind, answer] : answers()) kinds.push_back(kind);
    in.fault("kind", fmt::format("one of {}", fmt::join(kinds, ", ")), c.kind);
  }
  auto inputs = in.map("inputs");
  for (const char* key : kTexts) {
    if (inputs.has(key)) inputs.read(key, c.texts[key]);
  }
  for (const char* key : kFlags) {
    if (inputs.has(key)) inputs.read(key, c.flags[key]);
  }
  for (const char* key : kNumbers) {
    if (inputs.has(key)) inputs.read(key, c.numbers[key]);
  }
  std::vector<int64_t> leftover;  // a range; its upper end counts
  inputs.read("rollout_leftover_gb", leftover);
  if (!leftover.empty()) c.numbers["rollout_leftover_gb"] = static_cast<double>(leftover.back());
  inputs.finish(Unknown::kErrorIfNear);
  if (in.is_map("expected")) {
    for (const auto& [part, value] : in.map("expected").numbers()) {
      if (value) c.expected.emplace_back(part, *value);
    }
  } else {
    double value = 0;
    in.read("expected", value);
    c.expected.emplace_back("", value);
  }
  for (const char* key : {"source", "published", "notes"}) in.ignore(key);
  in.finish(Unknown::kErrorIfNear);
  return c;
}

}  // namespace

std::vector<MemoryCase> parse_memory_cases(const std::string& text, const std::string& file_name) {
  const auto file = open_input(text, file_name, "sim-memory/1");
  MapReader in(file, file->root, "", 1);
  std::vector<MemoryCase> out;
  in.require("cases");
  for (auto& entry : in.maps("cases")) out.push_back(read_case(entry, file_name));
  for (const char* key : {"schema", "note"}) in.ignore(key);
  in.finish(Unknown::kError);
  file->findings.throw_if_errors();
  return out;
}

std::vector<MemoryCase> load_memory_cases(const std::string& path) {
  return parse_memory_cases(read_input_text(path), path);
}

std::vector<std::pair<std::string, double>> predict_memory_case(const MemoryCase& memory_case,
                                                                const Catalog& catalog,
                                                                const Calibration& calibration) {
  const auto values = answers().at(memory_case.kind)({memory_case, catalog, calibration});
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [part, unread] : memory_case.expected) {
    if (const auto it = values.find(part); it != values.end()) out.emplace_back(part, it->second);
  }
  return out;
}

}  // namespace keel::sim

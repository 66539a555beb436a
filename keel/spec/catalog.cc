#include "keel/spec/catalog.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>

namespace keel {
namespace {

constexpr size_t kMaxListed = 8;  // findings of one kind before the rest is only counted
constexpr const char* kHead = "lm_head.weight";

std::string file_name(const WeightFiles& weights, const StoredTensor& stored) {
  return std::filesystem::path(weights.files[stored.file]->path()).filename().string();
}

// Layer number in "model.layers.12.x", -1 if there is none.
int64_t layer_of(const std::string& name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  int64_t layer = 0;
  size_t i = kPrefix.size();
  for (; i < name.size() && name[i] >= '0' && name[i] <= '9' && i < kPrefix.size() + 9; ++i) {
    layer = layer * 10 + (name[i] - '0');
  }
  return i > kPrefix.size() ? layer : -1;
}

bool is_quantised(const std::string& name) {
  constexpr std::array<std::string_view, 8> kMarks = {
      ".qweight",     ".qzeros",          ".scales", ".g_idx",
      "weight_scale", "weight_scale_inv", ".absmax", "quant_state"};
  return std::ranges::any_of(kMarks, [&](auto m) { return name.find(m) != std::string::npos; });
}

class Matcher {
 public:
  Matcher(const ModelSpec& spec, const WeightFiles& weights, std::vector<Finding>& findings)
      : spec_(spec), weights_(weights), findings_(findings) {}

  Catalog run() {
    out_.params = parameters(spec_);
    for (const auto& t : weights_.tensors)
      stored_layers_ = std::max(stored_layers_, layer_of(t.first) + 1);
    choose_layout();
    for (const auto& p : out_.params) match(p);
    check_head();
    report_missing();
    report_extra();
    report_dtypes();
    return std::move(out_);
  }

 private:
  void add(Level level, const char* kind, const std::string& file, const std::string& item,
           const std::string& message) {
    findings_.push_back({level, kind, file, item, message});
  }

  void choose_layout();
  void match(const ParamSpec& p);
  void match_piece(const ParamSpec& p, const ParamPiece& piece, const StoredTensor& stored);
  void check_head();
  void report_missing();
  void report_extra();
  void report_dtypes();

  const ModelSpec& spec_;
  const WeightFiles& weights_;
  std::vector<Finding>& findings_;
  Catalog out_;
  int64_t stored_layers_ = 0;
  std::set<std::string> used_;
  std::vector<std::string> missing_;
  std::set<ParamRole> wrong_shape_roles_;
  std::map<DType, std::pair<int64_t, StoredTensor>> dtypes_;  // count, first
};

void Matcher::choose_layout() {
  for (const auto& p : out_.params) {
    if (!p.is_expert || !weights_.tensors.contains(p.name)) continue;
    out_.expert_layout = ExpertLayout::kFused;
    const auto piece = p.pieces(ExpertLayout::kPerExpert)[0].name;
    const auto twin = weights_.tensors.find(piece);
    if (twin != weights_.tensors.end()) {
      add(Level::kError, "duplicate_tensor", file_name(weights_, twin->second), piece,
          "expected fused or per-expert tensors, got both (" + p.name + ")");
    }
  }
}

void Matcher::match(const ParamSpec& p) {
  out_.sources.emplace_back();
  for (const auto& piece : p.pieces(out_.expert_layout)) {
    const auto it = weights_.tensors.find(piece.name);
    if (it == weights_.tensors.end()) {
      missing_.push_back(piece.name);
      continue;
    }
    used_.insert(piece.name);
    match_piece(p, piece, it->second);
    out_.sources.back().push_back({it->second, piece.offset});
  }
}

void Matcher::match_piece(const ParamSpec& p, const ParamPiece& piece, const StoredTensor& stored) {
  const auto& t = *stored.tensor;
  if (t.shape != piece.shape && wrong_shape_roles_.insert(p.role).second) {
    add(Level::kError, "wrong_shape", file_name(weights_, stored), piece.name,
        fmt::format("expected {} (config.json: {}), got {}", shape_text(piece.shape), p.origin,
                    shape_text(t.shape)));
  }
  auto [it, fresh] = dtypes_.try_emplace(t.dtype, 0, stored);
  ++it->second.first;
}

void Matcher::check_head() {
  const auto head = weights_.tensors.find(kHead);
  if (!spec_.tied || head == weights_.tensors.end()) return;
  used_.insert(kHead);
  out_.has_tied_head = true;
  const auto embedding = weights_.tensors.find(out_.params[0].name);
  if (embedding == weights_.tensors.end()) return;
  const auto bytes = [&](const StoredTensor& s) {
    return weights_.files[s.file]->bytes(*s.tensor);
  };
  if (head->second.tensor->dtype == embedding->second.tensor->dtype &&
      std::ranges::equal(bytes(head->second), bytes(embedding->second))) {
    return;
  }
  add(Level::kWarn, "tied_conflict", file_name(weights_, head->second), kHead,
      "expected the embedding again (config.json: tie_word_embeddings is true), got other values; "
      "the embedding is used as head; try: tie_word_embeddings false if the head is meant");
}

void Matcher::report_missing() {
  if (stored_layers_ < spec_.layers && !missing_.empty()) {
    const auto first = std::ranges::find_if(
        missing_, [&](const std::string& n) { return layer_of(n) >= stored_layers_; });
    add(Level::kError, "missing_tensor", "config.json", "num_hidden_layers",
        fmt::format("expected weights of {} layers, got {}; the first missing one is {}",
                    spec_.layers, stored_layers_, *first));
    std::erase_if(missing_, [&](const std::string& n) { return layer_of(n) >= stored_layers_; });
  }
  for (size_t i = 0; i < missing_.size(); ++i) {
    if (missing_[i] == kHead) {
      add(Level::kError, "tied_conflict", "config.json", "tie_word_embeddings",
          "expected lm_head.weight since it is false, got no such tensor; try: true if the model "
          "is tied");
    } else if (i + 1 > kMaxListed) {
      add(Level::kError, "missing_tensor", "", missing_[i],
          fmt::format("expected a tensor, got nothing; so are {} others", missing_.size() - i - 1));
      break;
    } else {
      add(Level::kError, "missing_tensor", "", missing_[i],
          "expected a tensor of this name, got nothing in any file; try: download the model again");
    }
  }
}

void Matcher::report_extra() {
  size_t num_extra = 0, num_above = 0;
  for (const auto& [name, stored] : weights_.tensors) {
    if (used_.contains(name)) continue;
    const std::string file = file_name(weights_, stored);
    if (is_quantised(name)) {
      add(Level::kError, "unsupported_value", file, name,
          "expected unquantised weights, got a quantised model; try: its bf16 version");
      return;
    }
    if (layer_of(name) >= spec_.layers) {
      if (num_above++ == 0) {
        add(Level::kError, "extra_tensor", file, name,
            fmt::format("expected layers below {} (config.json: num_hidden_layers), got this",
                        spec_.layers));
      }
    } else if (++num_extra <= kMaxListed) {
      add(Level::kWarn, "extra_tensor", file, name, "expected no such tensor; it is ignored");
    }
  }
  if (num_extra > kMaxListed) {
    add(Level::kWarn, "extra_tensor", "", "",
        fmt::format("expected no other tensors, got {} more; they are ignored",
                    num_extra - kMaxListed));
  }
}

void Matcher::report_dtypes() {
  size_t num_float = 0;
  for (const auto& [dtype, entry] : dtypes_) {
    const auto& stored = entry.second;
    if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) {
      ++num_float;
      continue;
    }
    add(Level::kError, "wrong_dtype", file_name(weights_, stored), stored.tensor->name,
        fmt::format("expected F32, BF16 or F16, got {} ({} tensors)", dtype_name(dtype),
                    entry.first));
  }
  if (num_float < 2) return;
  const auto rare = std::ranges::min_element(
      dtypes_, [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  const auto& stored = rare->second.second;
  add(Level::kWarn, "mixed_dtype", file_name(weights_, stored), stored.tensor->name,
      fmt::format("expected one dtype, got {} in {} of {} tensors; all are converted on load",
                  dtype_name(rare->first), rare->second.first, used_.size()));
}

enum class Value { kFinite, kZero, kNan, kInfinite };

// What a tensor holds, and where the first bad element is. Bits: the unsigned type of its size.
template <class Bits>
Value classify(std::span<const std::byte> bytes, Bits exponent_mask, size_t& at) {
  const Bits magnitude_mask = static_cast<Bits>(~(Bits{1} << (8 * sizeof(Bits) - 1)));
  Bits any = 0;
  for (size_t i = 0; i < bytes.size() / sizeof(Bits); ++i) {
    Bits x;
    std::memcpy(&x, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    x &= magnitude_mask;
    any |= x;
    if (x >= exponent_mask) [[unlikely]] {
      at = i;
      return x == exponent_mask ? Value::kInfinite : Value::kNan;
    }
  }
  return any == 0 ? Value::kZero : Value::kFinite;
}

Value classify(DType dtype, std::span<const std::byte> bytes, size_t& at) {
  switch (dtype) {
    case DType::kF32:
      return classify<uint32_t>(bytes, 0x7F800000u, at);
    case DType::kBF16:
      return classify<uint16_t>(bytes, 0x7F80u, at);
    case DType::kF16:
      return classify<uint16_t>(bytes, 0x7C00u, at);
    default:
      return Value::kFinite;
  }
}

bool is_bias(ParamRole role) {
  return role == ParamRole::kQBias || role == ParamRole::kKBias || role == ParamRole::kVBias;
}

}  // namespace

Catalog make_catalog(const ModelSpec& spec, const WeightFiles& weights,
                     std::vector<Finding>& findings) {
  return Matcher(spec, weights, findings).run();
}

void check_weight_values(const Catalog& catalog, const WeightFiles& weights,
                         std::vector<Finding>& findings) {
  for (size_t p = 0; p < catalog.params.size(); ++p) {
    for (const auto& source : catalog.sources[p]) {
      const auto& t = *source.stored.tensor;
      size_t at = 0;
      const Value v = classify(t.dtype, weights.files[source.stored.file]->bytes(t), at);
      const std::string file = file_name(weights, source.stored);
      if (v == Value::kNan || v == Value::kInfinite) {
        findings.push_back({Level::kError, v == Value::kNan ? "nan_weight" : "inf_weight", file,
                            t.name,
                            fmt::format("expected finite numbers, got {} at element {}",
                                        v == Value::kNan ? "NaN" : "infinity", at)});
      } else if (v == Value::kZero && !is_bias(catalog.params[p].role)) {
        findings.push_back(
            {Level::kWarn, "zero_weight", file, t.name, "expected trained values, got only zeros"});
      }
    }
  }
}

}  // namespace keel

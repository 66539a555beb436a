#include "keel/observe/step_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "keel/base/json.h"

namespace keel {
namespace {

constexpr int kMaxLengthBins = 30;

template <class Pairs>
auto find_name(Pairs& pairs, std::string_view name) {
  return std::find_if(pairs.begin(), pairs.end(), [&](const auto& p) { return p.first == name; });
}

template <class T>
void put(std::vector<std::pair<std::string, T>>& pairs, std::string_view name, T value) {
  const auto it = find_name(pairs, name);
  if (it == pairs.end()) {
    pairs.emplace_back(name, std::move(value));
  } else {
    it->second = std::move(value);
  }
}

std::string number_text(double v) {
  if (std::isnan(v)) return "\"NaN\"";
  if (std::isinf(v)) return v > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  if (v == 0 && std::signbit(v)) return "-0.0";  // "-0" would be read as the integer 0
  return fmt::format("{}", v);
}

std::optional<double> read_number(const OrderedJson& j) {
  if (j.is_number()) return j.get<double>();
  if (j == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (j == "Infinity") return std::numeric_limits<double>::infinity();
  if (j == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::string numbers_text(const std::vector<double>& values) {
  std::string out = "[";
  for (const double v : values) {
    if (out.size() > 1) out += ',';
    out += number_text(v);
  }
  out += ']';
  return out;
}

std::string histogram_text(const Histogram& h) {
  return fmt::format(R"({{"edges":{},"counts":[{}],"min":{},"max":{},"sum":{},"sum_squares":{}}})",
                     numbers_text(h.edges), fmt::join(h.counts, ","), number_text(h.min),
                     number_text(h.max), number_text(h.sum), number_text(h.sum_squares));
}

std::optional<Histogram> read_histogram(const OrderedJson& j) {
  try {
    Histogram h{.edges = j.at("edges").get<std::vector<double>>(),
                .counts = j.at("counts").get<std::vector<int64_t>>(),
                .min = j.at("min").get<double>(),
                .max = j.at("max").get<double>(),
                .sum = j.at("sum").get<double>(),
                .sum_squares = j.at("sum_squares").get<double>()};
    const bool empty = h.edges.empty() && h.counts.empty();
    if (!empty && h.edges.size() != h.counts.size() + 1) return std::nullopt;
    return h;
  } catch (const OrderedJson::exception&) {
    return std::nullopt;
  }
}

}  // namespace

void StepRecord::set(std::string_view name, double value) { put(metrics_, name, value); }

std::optional<double> StepRecord::get(std::string_view name) const {
  const auto it = find_name(metrics_, name);
  return it == metrics_.end() ? std::nullopt : std::optional<double>(it->second);
}

void StepRecord::set_histogram(std::string_view name, Histogram histogram) {
  put(histograms_, name, std::move(histogram));
}

const Histogram* StepRecord::histogram(std::string_view name) const {
  const auto it = find_name(histograms_, name);
  return it == histograms_.end() ? nullptr : &it->second;
}

void StepRecord::set_mean_max_min(const std::string& prefix, std::span<const double> values) {
  const auto s = summarize(values);
  if (s.count == 0) return;
  set(prefix + "/mean", s.mean);
  set(prefix + "/max", s.max);
  set(prefix + "/min", s.min);
}

void StepRecord::set_lengths(const std::string& prefix, std::span<const double> lengths_tokens) {
  if (lengths_tokens.empty()) return;
  set_mean_max_min(prefix, lengths_tokens);
  const double percents[] = {10, 50, 90};
  const auto p = percentiles(lengths_tokens, percents);
  set(prefix + "/p10", p[0]);
  set(prefix + "/p50", p[1]);
  set(prefix + "/p90", p[2]);
  set_histogram(prefix, make_integer_histogram(lengths_tokens, kMaxLengthBins));
}

void StepRecord::merge(const StepRecord& other) {
  for (const auto& [name, value] : other.metrics_) set(name, value);
  for (const auto& [name, histogram] : other.histograms_) set_histogram(name, histogram);
}

std::vector<std::string> metric_names_with(std::span<const StepRecord> records,
                                           std::string_view prefix) {
  std::vector<std::string> names;
  for (const auto& record : records) {
    for (const auto& [name, value] : record.metrics()) {
      if (!name.starts_with(prefix)) continue;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string to_json_line(const StepRecord& record) {
  const auto quote = [](const std::string& s) {
    return Json(s).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string out = fmt::format("{{\"step\":{}", record.step());
  for (const auto& [name, value] : record.metrics()) {
    out += fmt::format(",{}:{}", quote(name), number_text(value));
  }
  if (!record.histograms().empty()) {
    out += ",\"histograms\":{";
    for (const auto& [name, histogram] : record.histograms()) {
      out += fmt::format("{}{}:{}", out.back() == '{' ? "" : ",", quote(name),
                         histogram_text(histogram));
    }
    out += "}";
  }
  return out + "}";
}

std::optional<StepRecord> parse_json_line(std::string_view line) {
  const auto j = OrderedJson::parse(line, nullptr, false);
  if (!j.is_object() || !j.contains("step") || !j["step"].is_number_integer()) return std::nullopt;
  StepRecord record(j["step"].get<int64_t>());
  for (const auto& [name, value] : j.items()) {
    if (name == "step") continue;
    if (name == "histograms" && value.is_object()) {
      for (const auto& [key, inner] : value.items()) {
        if (auto h = read_histogram(inner)) record.set_histogram(key, std::move(*h));
      }
    } else if (const auto number = read_number(value)) {
      record.set(name, *number);
    }
  }
  return record;
}

}  // namespace keel

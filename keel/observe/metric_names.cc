#include "keel/observe/metric_names.h"

namespace keel::metric {
namespace {

#define KEEL_METRIC_INFO(constant, name, help) {name, help},
constexpr Info kAll[] = {KEEL_METRICS(KEEL_METRIC_INFO)};
#undef KEEL_METRIC_INFO

}  // namespace

std::span<const Info> all() { return kAll; }

std::string_view help(std::string_view name) {
  for (const auto& info : kAll) {
    if (name == info.name) return info.help;
  }
  return "";
}

}  // namespace keel::metric

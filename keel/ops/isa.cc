#include "keel/ops/isa.h"

#include <fmt/ranges.h>

#include "keel/base/error.h"
#include "keel/ops/simd_targets.h"
// After simd_targets.h, which chooses what is built:
#include <hwy/highway.h>
#include <hwy/targets.h>

namespace keel::ops {
namespace {

// Lower bits are better within one architecture; this is Highway's documented order.
std::vector<int64_t> runnable() {
  hwy::SetSupportedTargetsForTest(0);
  std::vector<int64_t> out;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1)
    out.push_back(left & -left);
  return out;
}

int64_t& pinned() {
  static int64_t target = 0;
  return target;
}

}  // namespace

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const int64_t t : runnable()) names.emplace_back(hwy::TargetName(t));
  hwy::SetSupportedTargetsForTest(pinned());
  return names;
}

std::string kernel_isa() {
  return pinned() != 0 ? hwy::TargetName(pinned()) : supported_isas().front();
}

void pin_isa(const std::string& name) {
  int64_t found = 0;
  for (const int64_t t : runnable())
    if (hwy::TargetName(t) == name) found = t;
  if (found == 0 && !name.empty()) {
    hwy::SetSupportedTargetsForTest(pinned());
    throw_invalid("[numerics.isa] expected one of {}, got {}; try an empty value for the best",
                  fmt::join(supported_isas(), ", "), name);
  }
  pinned() = found;
  hwy::SetSupportedTargetsForTest(found);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace keel::ops

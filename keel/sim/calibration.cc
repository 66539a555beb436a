#include "keel/sim/calibration.h"

#include "keel/base/error.h"

namespace keel::sim {

void Calibration::set(Coefficient coefficient) {
  auto key = coefficient.key();
  all_.insert_or_assign(std::move(key), std::move(coefficient));
}

const Coefficient* Calibration::find(std::string_view key) const {
  const auto it = all_.find(key);
  return it == all_.end() ? nullptr : &it->second;
}

void Calibration::set_value(const std::string& key, double value) {
  const auto it = all_.find(key);
  KEEL_CHECK(it != all_.end(), "no coefficient {}", key);
  it->second.value = value;
}

double Calibration::value(const std::vector<std::string>& owners, std::string_view name,
                          std::set<std::string>* used) const {
  std::string key;
  for (const auto& owner : owners) {
    key.assign(owner).append("/").append(name);
    const auto it = all_.find(key);
    if (it == all_.end()) continue;
    if (used != nullptr) used->insert(key);
    return it->second.value;
  }
  throw_invalid("[calibration] expected coefficient {} of one of: {}; try the shipped calibration",
                name, fmt::join(owners, ", "));
}

Coefficients::Coefficients(const Calibration& calibration, const std::string& device,
                           const std::string& vendor, const std::string& stack,
                           const std::string& version, std::set<std::string>* used)
    : calibration_(&calibration), used_(used) {
  if (!stack.empty()) {
    if (!version.empty()) owners_.push_back(fmt::format("stack:{}@{}", stack, version));
    owners_.push_back("stack:" + stack);
  }
  if (!device.empty()) owners_.push_back("device:" + device);
  if (!vendor.empty()) owners_.push_back("vendor:" + vendor);
  owners_.push_back("any");
}

double Coefficients::operator()(std::string_view name) const {
  return calibration_->value(owners_, name, used_);
}

double Coefficients::kernel(const std::string& kernel, std::string_view name) const {
  auto owners = owners_;
  owners.insert(owners.begin(), "kernel:" + kernel);
  return calibration_->value(owners, name, used_);
}

}  // namespace keel::sim

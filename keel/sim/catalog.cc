#include "keel/sim/catalog.h"

#include <algorithm>
#include <filesystem>

#include "keel/base/config_suggest.h"
#include "keel/base/error.h"

namespace keel::sim {
namespace {

template <class T>
const T& find_named(const std::map<std::string, T>& all, const std::string& name,
                    const char* what) {
  const auto it = all.find(name);
  if (it != all.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [known, unused] : all) names.push_back(known);
  const auto near = nearest_name(name, names);
  throw_invalid("[{}] expected a known {}, got {}; try {}", what, what, name,
                near.empty() ? fmt::format("{}", fmt::join(names, ", ")) : near);
}

}  // namespace

const HardwareSpec& Catalog::find_hardware(const std::string& id) const {
  return find_named(hardware, id, "hardware");
}

const TwinModel& Catalog::find_model(const std::string& name) const {
  return find_named(models, name, "model");
}

Catalog load_catalog(const std::string& folder) {
  namespace fs = std::filesystem;
  KEEL_REQUIRE(
      fs::is_directory(folder + "/hardware"),
      "[catalog] expected a folder with hardware/*.yaml, models.yaml and lengths.yaml, got "
      "{}; try --catalog twin",
      folder);
  Catalog catalog;
  for (const auto& entry : fs::directory_iterator(folder + "/hardware")) {
    if (entry.path().extension() != ".yaml") continue;
    auto h = load_hardware(entry.path().string());
    catalog.hardware[h.id] = std::move(h);
  }
  catalog.models = load_models(folder + "/models.yaml");
  catalog.lengths = load_length_model(folder + "/lengths.yaml");
  return catalog;
}

}  // namespace keel::sim

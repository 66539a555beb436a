// All inputs of predictions in one place: a folder with hardware/*.yaml, models.yaml and
// lengths.yaml.
#pragma once

#include <map>
#include <string>

#include "keel/sim/hardware.h"
#include "keel/sim/lengths.h"
#include "keel/sim/model.h"

namespace keel::sim {

struct Catalog {
  std::map<std::string, HardwareSpec> hardware;
  std::map<std::string, TwinModel> models;
  LengthModel lengths;

  // Throw Error(kInvalid) with the nearest known name.
  const HardwareSpec& find_hardware(const std::string& id) const;
  const TwinModel& find_model(const std::string& name) const;
};

Catalog load_catalog(const std::string& folder);

}  // namespace keel::sim

#include <algorithm>
#include <cmath>

#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/sim/calibration.h"
#include "keel/sim/input/fields.h"

namespace keel::sim {
namespace {

bool is_owner(const std::string& owner) {
  if (owner == "any") return true;
  const auto colon = owner.find(':');
  const auto kind = owner.substr(0, colon);
  return colon != std::string::npos && colon + 1 < owner.size() &&
         (kind == "device" || kind == "vendor" || kind == "stack" || kind == "kernel");
}

std::string quoted(const std::string& text) { return Json(text).dump(); }

}  // namespace

Calibration parse_calibration(const std::string& text, const std::string& file_name) {
  const auto file = open_input(text, file_name, "sim-calibration/1");
  MapReader in(file, file->root, "", 1);
  Calibration out;
  in.require("coefficients");
  for (auto& entry : in.maps("coefficients")) {
    Coefficient c;
    for (const char* key : {"owner", "name", "unit", "value"}) entry.require(key);
    entry.read("owner", c.owner);
    entry.read("name", c.name);
    entry.read("unit", c.unit);
    entry.read("value", c.value);
    c.prior = c.value;
    entry.read("prior", c.prior);
    entry.read("prior_sigma", c.prior_sigma);
    entry.read("min", c.min);
    entry.read("max", c.max);
    entry.read("free", c.free);
    entry.read("source", c.source);
    entry.read("help", c.help);
    entry.finish(Unknown::kError);
    if (!is_owner(c.owner)) {
      entry.fault("owner", "any, device:ID, vendor:NAME, stack:NAME[@VERSION] or kernel:NAME",
                  c.owner);
    }
    if (c.free && (c.value <= 0 || c.prior <= 0)) {
      entry.fault("value", "a value and a prior above 0 where free is true",
                  fmt::format("{:g} and {:g}", c.value, c.prior), "free: false");
    }
    if (out.find(c.key()) != nullptr)
      entry.fault("name", "one entry for each owner and name", c.key());
    out.set(std::move(c));
  }
  for (const char* key : {"schema", "note", "fit"}) in.ignore(key);
  in.finish(Unknown::kError);
  file->findings.throw_if_errors();
  return out;
}

Calibration load_calibration(const std::string& path) {
  return parse_calibration(read_input_text(path), path);
}

std::string to_yaml(const Calibration& calibration) {
  std::string out = "schema: sim-calibration/1\ncoefficients:\n";
  for (const auto& [key, c] : calibration.all()) {
    out += fmt::format("- owner: {}\n  name: {}\n  unit: {}\n  value: {:.6g}\n", quoted(c.owner),
                       c.name, quoted(c.unit), c.value);
    out += fmt::format("  prior: {:.6g}\n  prior_sigma: {:.4g}\n", c.prior, c.prior_sigma);
    if (c.max > 0) out += fmt::format("  min: {:.6g}\n  max: {:.6g}\n", c.min, c.max);
    out += fmt::format("  free: {}\n  source: {}\n  help: {}\n", c.free, quoted(c.source),
                       quoted(c.help));
  }
  return out;
}

}  // namespace keel::sim

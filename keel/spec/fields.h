// Typed access to a JSON object that turns every wrong field into a finding and goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/spec/finding.h"

namespace keel {

class Fields {
 public:
  Fields(const Json& object, std::string file, std::vector<Finding>& findings)
      : object_(object), file_(std::move(file)), findings_(findings) {}

  // Present and not null.
  bool has(const std::string& key) const { return get(key) != nullptr; }
  // nullptr if absent or null.
  const Json* get(const std::string& key) const;

  // Integer in [low, high]. Without a default the field is required. Returns the default (or low)
  // after a finding.
  int64_t integer(const std::string& key, int64_t low, int64_t high,
                  std::optional<int64_t> fallback = std::nullopt);
  // Finite number in (low, high].
  double number(const std::string& key, double low, double high,
                std::optional<double> fallback = std::nullopt);
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::string& fallback);
  std::vector<int64_t> integers(const std::string& key, int64_t low, int64_t high);
  // One token id or a list of them, each in [0, vocab).
  std::vector<int64_t> token_ids(const std::string& key, int64_t vocab);

  void error(const std::string& kind, const std::string& key, const std::string& message);

 private:
  void wrong_type(const std::string& key, const char* expected, const Json& got);
  bool in_range(const std::string& key, const Json& value, int64_t low, int64_t high,
                const std::string& kind);

  const Json& object_;
  std::string file_;
  std::vector<Finding>& findings_;
};

// A value for a message: JSON text, cut after 60 characters.
std::string brief(const Json& value);

}  // namespace keel

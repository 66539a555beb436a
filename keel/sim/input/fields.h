// Reads the maps of an input file field by field. Faults are collected with file, line and field;
// what was not asked for is unknown.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/config_finding.h"
#include "keel/base/yaml.h"

namespace keel::sim {

// A parsed file and what is wrong with it so far.
struct InputFile {
  std::string name;
  YamlPtr root;  // a map
  ConfigFindings findings;
};

// Parses text whose root has to be a map with `schema: <schema>`; throws Error(kInvalid) if not.
std::shared_ptr<InputFile> open_input(const std::string& text, const std::string& file_name,
                                      std::string_view schema);
std::string read_input_text(const std::string& path);

// Unknown fields: always an error, or only where a known name is near (publications state more than
// the twin reads), else a warning.
enum class Unknown { kError, kErrorIfNear };

class MapReader {
 public:
  // node null: an empty map at `path`.
  MapReader(std::shared_ptr<InputFile> file, YamlPtr node, std::string path, int line);

  int line() const { return line_; }
  const std::string& path() const { return path_; }
  bool has(std::string_view key) const;  // present and not null

  // Absent or null fields leave `out` as it is. Numbers must be at least `min`.
  void read(std::string_view key, std::string& out);
  void read(std::string_view key, double& out, double min = 0);
  void read(std::string_view key, int64_t& out, int64_t min = 0);
  void read(std::string_view key, bool& out);
  void read(std::string_view key, std::optional<double>& out, double min = 0);
  void read(std::string_view key, std::optional<bool>& out);
  void read(std::string_view key, std::vector<int64_t>& out);
  void read(std::string_view key, std::vector<std::string>& out);

  bool is_map(std::string_view key) const;
  bool is_list(std::string_view key) const;
  MapReader map(std::string_view key);                                   // empty if absent or null
  std::vector<MapReader> maps(std::string_view key);                     // a list of maps
  std::vector<std::pair<std::string, MapReader>> named_maps();           // every field a map
  std::vector<std::pair<std::string, std::optional<double>>> numbers();  // null where no number

  void require(std::string_view key);  // a fault if absent
  void ignore(std::string_view key);   // known, not read
  void fault(std::string_view key, std::string expected, std::string got, std::string hint = "");
  void finish(Unknown unknown);  // faults for fields that nobody asked for

 private:
  const YamlEntry* find(std::string_view key);  // marks it as known
  std::string field(std::string_view key) const;
  std::optional<double> number(const YamlEntry& entry, std::string_view key, double min,
                               bool whole);

  std::shared_ptr<InputFile> file_;
  YamlPtr node_;
  std::string path_;
  int line_;
  std::vector<std::string> known_;
};

}  // namespace keel::sim

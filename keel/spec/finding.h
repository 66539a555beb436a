// One thing that is wrong or odd in a model folder.
#pragma once

#include <string>
#include <vector>

#include "keel/io/file_error.h"

namespace keel {

enum class Level { kWarn, kError };

struct Finding {
  Level level = Level::kError;
  std::string kind;     // short stable word: "missing_tensor", "wrong_shape", "bad_value", ...
  std::string file;     // path or file name; "" for the folder as a whole
  std::string item;     // tensor or field; may be ""
  std::string message;  // "expected X, got Y; try: Z"

  // "[config.json: hidden_size] expected ..., got ...; try: ...".
  std::string line() const;
};

// A file that could not be read, as a finding.
Finding finding_of(const FileError& error, const std::string& file);

bool has_errors(const std::vector<Finding>& findings);

// Throws FileError (kind as fault) with the first error and how many more there are; does nothing
// if there is none.
void throw_first_error(const std::vector<Finding>& findings);

}  // namespace keel

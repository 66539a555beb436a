// A wrong file. `fault` is a short stable word for programs ("missing_file", "file_truncated",
// "bad_header", ...); what() is the line for people.
#pragma once

#include <string>
#include <utility>

#include "keel/base/error.h"

namespace keel {

class FileError : public Error {
 public:
  FileError(std::string fault, ErrorKind kind, const std::string& message)
      : Error(kind, message), fault_(std::move(fault)) {}
  const std::string& fault() const { return fault_; }

 private:
  std::string fault_;
};

// message: what follows "[path] ".
template <class... Args>
[[noreturn]] void throw_file_error(const char* fault, const std::string& path,
                                   fmt::format_string<Args...> format, Args&&... args) {
  throw FileError(fault, ErrorKind::kInvalid,
                  "[" + path + "] " + fmt::format(format, std::forward<Args>(args)...));
}

// A failed system call: full disk, read-only, no permission, too many files -> kResource; a missing
// file -> kInvalid, fault "missing_file"; the rest kInvalid, fault "io". action: "open", "write".
[[noreturn]] void throw_errno(const std::string& path, const char* action, int error_number);

}  // namespace keel

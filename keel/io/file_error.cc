#include "keel/io/file_error.h"

#include <cerrno>
#include <cstring>

namespace keel {
namespace {

struct Explanation {
  ErrorKind kind;
  const char* fault;
  const char* hint;
};

Explanation explain(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return {ErrorKind::kResource, "disk_full", "free some space or choose another folder"};
    case EROFS:
      return {ErrorKind::kResource, "read_only", "choose a folder that can be written"};
    case EACCES:
    case EPERM:
      return {ErrorKind::kResource, "no_permission",
              "check the owner and the permissions of the file and its folder"};
    case EMFILE:
    case ENFILE:
      return {ErrorKind::kResource, "too_many_files", "raise the limit with ulimit -n"};
    case ENOMEM:
      return {ErrorKind::kResource, "no_memory", "free some memory"};
    case EIO:
    case EFBIG:
      return {ErrorKind::kResource, "io", "check the disk"};
    case ENOENT:
    case ENOTDIR:
      return {ErrorKind::kInvalid, "missing_file", "check the path"};
    default:
      return {ErrorKind::kInvalid, "io", "check the path"};
  }
}

}  // namespace

void throw_errno(const std::string& path, const char* action, int error_number) {
  const auto e = explain(error_number);
  throw FileError(e.fault, e.kind,
                  fmt::format("[{}] cannot {}: {}; try: {}", path, action,
                              std::strerror(error_number), e.hint));
}

}  // namespace keel

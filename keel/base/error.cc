#include "keel/base/error.h"

namespace keel {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid:
      return 2;
    case ErrorKind::kResource:
      return 3;
    case ErrorKind::kPeer:
      return 4;
    case ErrorKind::kInterrupted:
      return 130;
  }
  return 1;
}

void throw_internal(const char* file, int line, const char* condition, const std::string& message) {
  const std::string path = file;
  const size_t at = path.rfind("keel/");
  throw InternalError(fmt::format("{}:{}: internal error: {} ({})",
                                  at == std::string::npos ? path : path.substr(at), line, message,
                                  condition));
}

}  // namespace keel

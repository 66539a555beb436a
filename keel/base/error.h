// Two kinds of failure. KEEL_REQUIRE: the input is wrong; the user reads "[where] expected X, got
// Y; try Z". KEEL_CHECK: our own invariant broke; always on. Expected outcomes are return values,
// not errors.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace keel {

// Each kind has one process exit code (see exit_code).
enum class ErrorKind {
  kInvalid,      // wrong input: data, configuration, model, arguments
  kResource,     // memory, disk, file descriptors
  kPeer,         // another rank failed
  kInterrupted,  // SIGINT / SIGTERM; state was saved
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Our bug. `what()` holds file, line and the broken condition.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// 2 wrong input, 3 resource, 4 peer, 130 interrupted (0 is success, 1 our bug).
int exit_code(ErrorKind kind);

template <class... Args>
[[noreturn]] void throw_invalid(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kInvalid, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void throw_internal(const char* file, int line, const char* condition,
                                 const std::string& message);

}  // namespace keel

// KEEL_REQUIRE(n > 0, "[data.train] expected at least one row, got {}; try another file", n);
#define KEEL_REQUIRE(cond, ...)           \
  do {                                    \
    if (!(cond)) [[unlikely]]             \
      ::keel::throw_invalid(__VA_ARGS__); \
  } while (false)

// KEEL_CHECK(i < size, "index {} of {}", i, size);
#define KEEL_CHECK(cond, ...)                                                        \
  do {                                                                               \
    if (!(cond)) [[unlikely]]                                                        \
      ::keel::throw_internal(__FILE__, __LINE__, #cond, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// Regular expressions of tokenizer files (Oniguruma syntax) on PCRE2 with JIT, in UTF mode.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace keel {

// Immutable after construction; share it between threads and give each thread its own Matcher.
class Regex {
 public:
  struct Match {
    size_t begin;
    size_t end;
  };

  // `\s` means White_Space and `^ $` match at lines, as in Oniguruma. Throws Error(kInvalid) that
  // names `where` if the pattern does not compile.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  const std::string& pattern() const { return pattern_; }

  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    // First match at or after byte `start`. `text` must be valid UTF-8 and `start` a boundary.
    // Throws Error(kResource) if the pattern needs too much backtracking.
    std::optional<Match> find(std::string_view text, size_t start);

   private:
    struct State;
    const Regex& regex_;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace keel

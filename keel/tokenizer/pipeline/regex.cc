#include "keel/tokenizer/pipeline/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "keel/base/error.h"

namespace keel {
namespace {

// PCRE2's \s also takes U+180E; Oniguruma's is the White_Space property.
std::string translate(const std::string& pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char next = pattern[++i];
    if (next == 's') {
      out += "\\p{White_Space}";
    } else if (next == 'S') {
      out += "\\P{White_Space}";
    } else if (next == 'h') {  // a hexadecimal digit in Oniguruma, a blank in PCRE2
      out += "\\p{AHex}";
    } else {
      out += '\\';
      out += next;
    }
  }
  return out;
}

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  return pcre2_get_error_message(code, buffer, sizeof(buffer)) >= 0
             ? reinterpret_cast<const char*>(buffer)
             : "error " + std::to_string(code);
}

constexpr size_t kJitStackStart = 32 * 1024;
constexpr size_t kJitStackMax = 4 * 1024 * 1024;

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

struct Regex::Matcher::State {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

Regex::Regex(const std::string& pattern, const std::string& where)
    : pattern_(pattern), code_(std::make_unique<Code>()) {
  const std::string translated = translate(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, nullptr);
  KEEL_REQUIRE(code_->code != nullptr, "[{}] expected a regular expression, got '{}': {}", where,
               pattern, error_text(error));
  code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;

Regex::Matcher::Matcher(const Regex& regex) : regex_(regex), state_(std::make_unique<State>()) {
  state_->data = pcre2_match_data_create_from_pattern(regex.code_->code, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  KEEL_CHECK(state_->data && state_->context, "PCRE2 out of memory");
  if (regex.code_->jit) {
    state_->stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
    if (state_->stack) pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
  }
}

Regex::Matcher::~Matcher() = default;

std::optional<Regex::Match> Regex::Matcher::find(std::string_view text, size_t start) {
  const auto run = [&](uint32_t options) {
    return pcre2_match(regex_.code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       start, options | PCRE2_NO_UTF_CHECK, state_->data, state_->context);
  };
  int rc = run(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = run(PCRE2_NO_JIT);
  if (rc == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (rc < 0) {
    throw Error(ErrorKind::kResource, fmt::format("[tokenizer] regular expression '{}' failed: {}",
                                                  regex_.pattern_, error_text(rc)));
  }
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(state_->data);
  if (span[0] > span[1]) return std::nullopt;  // only \K in a look-ahead does this
  return Match{span[0], span[1]};
}

}  // namespace keel

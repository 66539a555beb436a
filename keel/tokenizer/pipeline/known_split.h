// Hand-written scanners for the pre-tokenizer patterns of GPT-2, Qwen2/3 and Llama-3; they find the
// same pieces as PCRE2 does, without a regular expression engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Bytes [begin, end) of a text.
struct Range {
  size_t begin;
  size_t end;
};

enum class KnownSplit {
  kGpt2,     // ByteLevel with use_regex
  kDigits1,  // Qwen2, Qwen3: every digit alone
  kDigits3,  // Llama-3: digits in groups of up to three
};

extern const char* const kGpt2Pattern;
extern const char* const kDigits1Pattern;
extern const char* const kDigits3Pattern;

std::optional<KnownSplit> known_split(const std::string& pattern);

// Appends the pieces of text[range]; together they cover it. Look-ahead stops at range.end.
// text[range] must be valid UTF-8.
void split_known(KnownSplit rule, std::string_view text, Range range, std::vector<Range>& out);

}  // namespace keel

// Strict parsing of one JSON record with findings that name the field: duplicate keys, numbers that
// do not fit, lone surrogates, bytes that are not UTF-8, depth. Never recurses, never throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keel/base/json.h"
#include "keel/data/finding.h"

namespace keel {

// A problem inside one record; the reader adds file, row and line.
struct Issue {
  std::string kind;
  FindingLevel level;
  std::string field;
  std::string message;
  int64_t line_offset = 0;  // lines below the record's first line
};

// Parses `text` into `out`. False if the record is unusable (an issue of level kError was added).
// Integers outside 64 bits and numbers beyond double are kept as text, with a warning.
bool parse_json_record(std::string_view text, int max_depth, OrderedJson& out,
                       std::vector<Issue>& issues);

// The same value with keys in sorted order; bytes that are not UTF-8 are replaced.
Json plain_json(const OrderedJson& value);

// True if `s` is well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view s);

// True if `s` holds nothing but white space, that of Unicode included.
bool is_blank(std::string_view s);

// At most max_bytes of s, cut at a character boundary, control characters shown as '?'.
std::string printable(std::string_view s, size_t max_bytes);

}  // namespace keel

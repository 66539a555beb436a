// Python's string functions on UTF-8.
#include <utf8proc.h>

#include <algorithm>

#include "keel/tokenizer/jinja/builtins.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel::jinja {
namespace {

bool is_space(char32_t c) {
  // Python's str.isspace also takes the four information separators.
  return (c >= 0x1C && c <= 0x1F) ||
         (unicode::classes(unicode::class_table(), c) & unicode::kSpace) != 0;
}

template <class F>
std::string map_points(const std::string& s, F&& f) {
  std::string out;
  out.reserve(s.size());
  for (const char32_t c : unicode::to_code_points(s)) unicode::append(out, f(c));
  return out;
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_title(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace

std::string upper(const std::string& s) {
  std::string out;
  for (const char32_t c : unicode::to_code_points(s)) {
    if (c == 0xDF) {
      out += "SS";
    } else {
      unicode::append(out, to_upper(c));
    }
  }
  return out;
}

std::string lower(const std::string& s) { return map_points(s, to_lower); }

std::string capitalize(const std::string& s) {
  bool first = true;
  return map_points(
      s, [&](char32_t c) { return std::exchange(first, false) ? to_title(c) : to_lower(c); });
}

std::string title(const std::string& s) {
  bool in_word = false;
  return map_points(s, [&](char32_t c) {
    const bool cased = to_upper(c) != c || to_lower(c) != c;
    const char32_t out = in_word ? to_lower(c) : to_title(c);
    in_word = cased;
    return out;
  });
}

std::string strip(const std::string& s, const std::string* chars, Side side) {
  const auto set = chars ? unicode::to_code_points(*chars) : std::vector<char32_t>();
  const auto goes = [&](size_t at) {
    const char32_t c = unicode::decode(s.data() + at).value;
    return chars ? std::find(set.begin(), set.end(), c) != set.end() : is_space(c);
  };
  size_t begin = 0, end = s.size();
  while (side != Side::kRight && begin < end && goes(begin)) {
    begin += unicode::decode(s.data() + begin).num_bytes;
  }
  while (side != Side::kLeft && end > begin) {
    const size_t last = unicode::previous(s, end);
    if (!goes(last)) break;
    end = last;
  }
  return s.substr(begin, end - begin);
}

std::string replace(const std::string& s, const std::string& from, const std::string& to,
                    int64_t count, Budget& budget) {
  std::string out;
  const auto put = [&](std::string_view part) {
    budget.bytes(part.size());
    out += part;
  };
  if (from.empty()) {  // between all code points, as in Python
    for (size_t i = 0;;) {
      if (count != 0) {
        put(to);
        --count;
      }
      if (i >= s.size()) return out;
      const size_t n = unicode::decode(s.data() + i).num_bytes;
      put(std::string_view(s).substr(i, n));
      i += n;
    }
  }
  size_t done = 0;
  for (size_t hit = s.find(from); hit != std::string::npos && count != 0;
       hit = s.find(from, done), --count) {
    put(std::string_view(s).substr(done, hit - done));
    put(to);
    done = hit + from.size();
  }
  put(std::string_view(s).substr(done));
  return out;
}

}  // namespace keel::jinja

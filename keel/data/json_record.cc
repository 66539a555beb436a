#include "keel/data/json_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace keel {
namespace {

constexpr int kMaxNumberRepairs = 16;

// Builds the document and knows the path of the value at hand.
class Handler : public nlohmann::json_sax<OrderedJson> {
 public:
  Handler(OrderedJson& root, int max_depth, std::vector<Issue>& issues)
      : root_(root), max_depth_(max_depth), issues_(issues) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(v); }
  bool number_unsigned(number_unsigned_t v) override { return put(v); }
  bool number_float(number_float_t v, const string_t& raw) override {
    if (raw.find_first_of(".eE") != std::string::npos) return put(v);
    issues_.push_back(
        {"int_overflow", FindingLevel::kWarn, path(),
         fmt::format("{} does not fit in 64 bits; kept as text", printable(raw, 40))});
    return put(raw);
  }
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(OrderedJson::object()); }
  bool start_array(std::size_t) override { return open(OrderedJson::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& k) override {
    auto& top = stack_.back();
    auto& members = top.node->get_ref<OrderedJson::object_t&>();
    if (!is_new_key(top, members, k)) {
      top.key = k;
      return fail("duplicate_key", "the key is given twice in one object");
    }
    top.key = k;
    using Members = std::vector<OrderedJson::object_t::value_type>;
    static_cast<Members&>(members).emplace_back(k, nullptr);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& ex) override {
    error_position = position;
    error_token = token;
    error_id = ex.id;
    error_text = ex.what();
    return false;
  }

  std::string path() const {
    std::string s;
    for (const auto& f : stack_) {
      if (f.node->is_array()) {
        s += fmt::format("[{}]", f.node->size());
      } else if (!f.key.empty()) {
        if (!s.empty()) s += '.';
        s += printable(f.key, 60);
      }
      if (s.size() > 200) break;
    }
    return s;
  }

  std::size_t error_position = 0;
  std::string error_token, error_text;
  int error_id = 0;
  bool reported = false;

 private:
  struct Frame {
    OrderedJson* node;
    std::string key;                       // the key whose value comes next
    std::unordered_set<std::string> seen;  // used once an object has many keys
  };

  static bool is_new_key(Frame& frame, const OrderedJson::object_t& members, const std::string& k) {
    constexpr size_t kManyKeys = 16;
    if (members.size() < kManyKeys) {
      return std::none_of(members.begin(), members.end(),
                          [&](const auto& m) { return m.first == k; });
    }
    if (frame.seen.empty()) {
      for (const auto& m : members) frame.seen.insert(m.first);
    }
    return frame.seen.insert(k).second;
  }

  bool fail(const char* kind, const std::string& message) {
    issues_.push_back({kind, FindingLevel::kError, path(), message});
    reported = true;
    return false;
  }

  OrderedJson* place(OrderedJson&& v) {
    if (stack_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    auto& top = stack_.back();
    if (top.node->is_array()) {
      top.node->push_back(std::move(v));
      return &top.node->back();
    }
    auto& slot = top.node->get_ref<OrderedJson::object_t&>().back().second;
    slot = std::move(v);
    return &slot;
  }

  bool put(OrderedJson v) {
    place(std::move(v));
    return true;
  }

  bool open(OrderedJson v) {
    if (static_cast<int>(stack_.size()) >= max_depth_) {
      stack_.resize(std::min<size_t>(stack_.size(), 1));  // the path down there helps nobody
      return fail("too_deep", fmt::format("more than {} nested levels", max_depth_));
    }
    stack_.push_back({place(std::move(v)), "", {}});
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  OrderedJson& root_;
  int max_depth_;
  std::vector<Issue>& issues_;
  std::vector<Frame> stack_;
};

std::string classify(const std::string& error, std::string_view at) {
  static constexpr std::pair<const char*, const char*> kTable[] = {
      {"ill-formed UTF-8", "encoding"},
      {"surrogate", "lone_surrogate"},
      {"expected end of input", "trailing_data"}};
  for (const auto& [part, kind] : kTable) {
    if (error.find(part) != std::string::npos) return kind;
  }
  for (const auto* word : {"NaN", "Infinity", "-Infinity"}) {
    if (at.substr(0, std::strlen(word)) == word) return "non_finite";
  }
  return "json_syntax";
}

// The library's sentence without its prefix and without the token, which can be megabytes long.
std::string reason(const std::string& text) {
  auto s = std::string_view(text);
  if (const auto p = s.find(" - "); p != s.npos) s.remove_prefix(p + 3);
  if (const auto p = s.find("; last read"); p != s.npos) s = s.substr(0, p);
  return printable(s, 120);
}

Issue syntax_issue(std::string_view text, const Handler& handler) {
  const size_t end = std::min(handler.error_position, text.size());
  const size_t begin = end > handler.error_token.size() ? end - handler.error_token.size() : 0;
  size_t word = end == 0 ? 0 : end - 1;  // first byte of the word that was not understood
  while (word > 0 &&
         (std::isalpha(static_cast<unsigned char>(text[word - 1])) || text[word - 1] == '-')) {
    --word;
  }
  const size_t bol = text.substr(0, end).rfind('\n') + 1;  // npos + 1 = 0
  Issue issue{classify(handler.error_text, text.substr(word)), FindingLevel::kError, handler.path(),
              fmt::format("column {}: {}, near '{}'", end - bol, reason(handler.error_text),
                          printable(text.substr(std::min(begin, word)), 30))};
  issue.line_offset = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(end), '\n');
  return issue;
}

}  // namespace

Json plain_json(const OrderedJson& value) {
  return Json::parse(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

bool is_utf8(std::string_view s) {
  const auto* p = reinterpret_cast<const unsigned char*>(s.data());
  for (size_t i = 0; i < s.size();) {
    const unsigned char c = p[i];
    if (c < 0x80) {
      ++i;
      continue;
    }
    const int extra = c >= 0xC2 && c <= 0xDF   ? 1
                      : (c & 0xF0) == 0xE0     ? 2
                      : c >= 0xF0 && c <= 0xF4 ? 3
                                               : 0;
    if (extra == 0 || i + extra >= s.size()) return false;
    for (int k = 1; k <= extra; ++k) {
      if ((p[i + k] & 0xC0) != 0x80) return false;
    }
    const unsigned char d = p[i + 1];
    if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) ||
        (c == 0xF4 && d > 0x8F)) {
      return false;
    }
    i += extra + 1;
  }
  return true;
}

bool is_blank(std::string_view s) {
  static constexpr std::string_view kSpaces[] = {" ",
                                                 "\t",
                                                 "\r",
                                                 "\n",
                                                 "\f",
                                                 "\v",
                                                 "\xC2\x85",
                                                 "\xC2\xA0",
                                                 "\xE3\x80\x80",
                                                 "\xE1\x9A\x80",
                                                 "\xE2\x80\xA8",
                                                 "\xE2\x80\xA9",
                                                 "\xE2\x80\xAF",
                                                 "\xEF\xBB\xBF"};
  while (!s.empty()) {
    size_t n = 0;
    for (const auto space : kSpaces) n = s.starts_with(space) ? space.size() : n;
    // U+2000 to U+200F: spaces of many widths, zero-width marks
    if (n == 0 && s.size() >= 3 && s.starts_with("\xE2\x80") &&
        static_cast<unsigned char>(s[2]) < 0x90)
      n = 3;
    if (n == 0) return false;
    s.remove_prefix(n);
  }
  return true;
}

std::string printable(std::string_view s, size_t max_bytes) {
  if (s.size() > max_bytes) {
    while (max_bytes > 0 && (static_cast<unsigned char>(s[max_bytes]) & 0xC0) == 0x80) --max_bytes;
    s = s.substr(0, max_bytes);
  }
  std::string out(s);
  const bool valid = is_utf8(s);
  for (auto& c : out) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u == 0x7F || (u >= 0x80 && !valid)) c = '?';
  }
  return out;
}

bool parse_json_record(std::string_view text, int max_depth, OrderedJson& out,
                       std::vector<Issue>& issues) {
  // The library takes a NUL for the end of its input.
  if (text.find('\0') != text.npos) {
    issues.push_back({"json_syntax", FindingLevel::kError, "",
                      fmt::format("column {}: NUL byte", text.find('\0') + 1)});
    return false;
  }
  std::string repaired;  // the text with overflowing numbers put in quotes
  for (int repairs = 0;; ++repairs) {
    out = nullptr;
    std::vector<Issue> found;
    Handler handler(out, max_depth, found);
    const bool ok = OrderedJson::sax_parse(text.begin(), text.end(), &handler);
    if (ok || handler.reported) {
      issues.insert(issues.end(), found.begin(), found.end());
      return ok;
    }
    constexpr int kNumberOverflow = 406;
    const size_t length = handler.error_token.size();
    const size_t begin = handler.error_position - std::min(handler.error_position, length);
    if (handler.error_id != kNumberOverflow || repairs == kMaxNumberRepairs ||
        text.substr(begin, length) != handler.error_token) {
      issues.push_back(syntax_issue(text, handler));
      return false;
    }
    issues.push_back(
        {"non_finite", FindingLevel::kWarn, handler.path(),
         fmt::format("{} overflows a double; kept as text", printable(handler.error_token, 40))});
    std::string next(text.substr(0, begin));
    next += '"' + handler.error_token + '"';
    next += text.substr(begin + length);
    repaired = std::move(next);
    text = repaired;
  }
}

}  // namespace keel

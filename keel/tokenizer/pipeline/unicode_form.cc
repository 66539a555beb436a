#include "keel/tokenizer/pipeline/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>

#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {
namespace {

// `change` follows tokenizers' alignment rule: 0 takes the place of one input code point, 1 is
// added to it, -n also swallows the n that follow.
struct Item {
  char32_t value;
  int change;
  int combining_class;
};

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// The primary composite of a and b, or 0.
char32_t compose(char32_t a, char32_t b) {
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(a), static_cast<utf8proc_int32_t>(b)};
  const auto n = utf8proc_normalize_utf32(
      pair, 2, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  return n == 1 ? static_cast<char32_t>(pair[0]) : 0;
}

std::vector<Item> decompose(std::string_view text, bool compatible) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<Item> items;
  for (const char32_t c : unicode::to_code_points(text)) {
    utf8proc_int32_t parts[64];
    int boundary = 0;
    auto n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 64, options, &boundary);
    if (n <= 0 || n > 64) {
      parts[0] = static_cast<utf8proc_int32_t>(c);
      n = 1;
    }
    for (utf8proc_ssize_t i = 0; i < n; ++i) {
      const auto part = static_cast<char32_t>(parts[i]);
      items.push_back({part, i == 0 ? 0 : 1, combining_class(part)});
    }
  }
  // Canonical order: stable sort of every run of marks by combining class.
  for (size_t i = 0; i < items.size();) {
    size_t end = i;
    while (end < items.size() && items[end].combining_class != 0) ++end;
    std::stable_sort(
        items.begin() + static_cast<ptrdiff_t>(i), items.begin() + static_cast<ptrdiff_t>(end),
        [](const Item& a, const Item& b) { return a.combining_class < b.combining_class; });
    i = std::max(end, i + 1);
  }
  return items;
}

// Canonical composition (Unicode Standard, 3.11, D117).
std::vector<Item> recompose(const std::vector<Item>& items) {
  std::vector<Item> out;
  ptrdiff_t starter = -1;
  int last_class = -1;  // of what was kept after the starter; -1 = nothing
  for (const Item& item : items) {
    if (starter >= 0 && last_class < item.combining_class) {
      Item& base = out[static_cast<size_t>(starter)];
      if (const char32_t joined = compose(base.value, item.value)) {
        base.value = joined;
        base.change += item.change - 1;
        continue;
      }
    }
    out.push_back(item);
    if (item.combining_class == 0) {
      starter = static_cast<ptrdiff_t>(out.size()) - 1;
      last_class = -1;
    } else {
      last_class = item.combining_class;
    }
  }
  return out;
}

class Converter {
 public:
  Converter(const Text& text, UnicodeForm form) : text_(text), form_(form), out_(text) {}

  void keep(size_t begin, size_t end) { out_.keep(begin, end); }

  void convert(size_t begin, size_t end) {
    const std::string_view part = std::string_view(text_.bytes).substr(begin, end - begin);
    std::vector<Item> items = decompose(part, form_.compatible);
    if (form_.composed) items = recompose(items);
    size_t at = begin;  // the next input byte that an item stands for
    const auto skip = [&] {
      if (at < end) at += unicode::decode(text_.bytes.data() + at).num_bytes;
    };
    for (const Item& item : items) {
      const Span span =
          item.change > 0 ? text_.span(at > 0 ? at - 1 : 0) : text_.span(std::min(at, end - 1));
      buffer_.clear();
      unicode::append(buffer_, item.value);
      out_.insert(buffer_, span);
      for (int n = item.change; n <= 0; ++n) skip();
    }
  }

  Text finish() { return out_.finish(); }

 private:
  const Text& text_;
  UnicodeForm form_;
  TextBuilder out_;
  std::string buffer_;
};

// First byte at or after `from` of a code point that may need work; at once past plain text.
size_t find_unstable(std::string_view text, size_t from, bool only_ascii_is_stable) {
  const uint8_t* table = unicode::class_table();
  while (from < text.size()) {
    if (static_cast<unsigned char>(text[from]) < 0x80) {
      ++from;
      continue;
    }
    const unicode::CodePoint c = unicode::decode(text.data() + from);
    if (only_ascii_is_stable || !(unicode::classes(table, c.value) & unicode::kStable)) break;
    from += c.num_bytes;
  }
  return from;
}

}  // namespace

void to_unicode_form(Text& text, UnicodeForm form) {
  const std::string_view bytes = text.bytes;
  // Other forms change code points that NFC leaves alone; there only ASCII is safe.
  const bool ascii_only = form.compatible || !form.composed;
  size_t hit = find_unstable(bytes, 0, ascii_only);
  if (hit == bytes.size()) return;
  const uint8_t* table = unicode::class_table();
  Converter converter(text, form);
  size_t done = 0;
  while (hit < bytes.size()) {
    // What stands before may take part in a composition.
    const size_t begin = hit > done ? unicode::previous(bytes, hit) : hit;
    size_t end = hit;
    while (end < bytes.size()) {
      const unicode::CodePoint c = unicode::decode(bytes.data() + end);
      const bool stable =
          ascii_only ? c.value < 0x80 : (unicode::classes(table, c.value) & unicode::kStable) != 0;
      if (stable) break;
      end += c.num_bytes;
    }
    converter.keep(done, begin);
    converter.convert(begin, end);
    done = end;
    hit = find_unstable(bytes, end, ascii_only);
  }
  converter.keep(done, bytes.size());
  text = converter.finish();
}

}  // namespace keel

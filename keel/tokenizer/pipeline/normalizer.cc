#include "keel/tokenizer/pipeline/normalizer.h"

#include <utf8proc.h>

#include <vector>

#include "keel/tokenizer/pipeline/unicode.h"
#include "keel/tokenizer/pipeline/unicode_form.h"

namespace keel {
namespace {

class Form : public Normalizer {
 public:
  explicit Form(UnicodeForm form) : form_(form) {}
  void apply(Text& text) const override { to_unicode_form(text, form_); }

 private:
  UnicodeForm form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(Text& text) const override {
    TextBuilder out(text);
    std::string lower;
    for (size_t i = 0; i < text.bytes.size();) {
      const unicode::CodePoint c = unicode::decode(text.bytes.data() + i);
      lower.clear();
      unicode::append(
          lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))));
      if (c.value == 0x130) lower = "i\xCC\x87";  // the one code point whose lower case is two
      out.insert(lower, text.span(i));
      i += c.num_bytes;
    }
    text = out.finish();
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(Text& text) const override {
    const uint8_t* table = unicode::class_table();
    const auto is_space = [&](size_t at) {
      const auto c = unicode::decode(text.bytes.data() + at).value;
      return (unicode::classes(table, c) & unicode::kSpace) != 0;
    };
    size_t begin = 0, end = text.bytes.size();
    while (left_ && begin < end && is_space(begin)) {
      begin += unicode::decode(text.bytes.data() + begin).num_bytes;
    }
    while (right_ && end > begin) {
      const size_t last = unicode::previous(text.bytes, end);
      if (!is_space(last)) break;
      end = last;
    }
    TextBuilder out(text);
    out.keep(begin, end);
    text = out.finish();
  }

 private:
  bool left_, right_;
};

class StripAccents : public Normalizer {
 public:
  void apply(Text& text) const override {
    TextBuilder out(text);
    for (size_t i = 0; i < text.bytes.size();) {
      const unicode::CodePoint c = unicode::decode(text.bytes.data() + i);
      const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c.value));
      if (category != UTF8PROC_CATEGORY_MN) out.keep(i, i + c.num_bytes);
      i += c.num_bytes;
    }
    text = out.finish();
  }
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(Text& text) const override {
    if (text.bytes.empty()) return;
    TextBuilder out(text);
    out.insert(prefix_, text.span(0));
    out.keep(0, text.bytes.size());
    text = out.finish();
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Text& text) const override {
    TextBuilder out(text);
    size_t done = 0;
    pattern_.each(text.bytes, 0, text.bytes.size(), [&](size_t begin, size_t end) {
      out.keep(done, begin);
      out.insert(content_, text.span(end - 1));
      done = end;
    });
    if (done == 0) return;
    out.keep(done, text.bytes.size());
    text = out.finish();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class NormalizerChain : public Normalizer {
 public:
  explicit NormalizerChain(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(Text& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Component& c) {
  if (c.json.is_null()) return nullptr;
  const std::string type = c.type();
  if (type == "NFC") return std::make_unique<Form>(UnicodeForm{false, true});
  if (type == "NFD") return std::make_unique<Form>(UnicodeForm{false, false});
  if (type == "NFKC") return std::make_unique<Form>(UnicodeForm{true, true});
  if (type == "NFKD") return std::make_unique<Form>(UnicodeForm{true, false});
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Prepend") return std::make_unique<Prepend>(c.get<std::string>("prepend"));
  if (type == "Strip") {
    return std::make_unique<Strip>(c.get("strip_left", true), c.get("strip_right", true));
  }
  if (type == "Replace") {
    return std::make_unique<Replace>(Pattern(c.child("pattern")), c.get<std::string>("content"));
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    const Component list = c.child("normalizers");
    for (size_t i = 0; i < list.json.size(); ++i) {
      auto part = make_normalizer({list.json.at(i), fmt::format("{}[{}]", list.where, i)});
      if (part) parts.push_back(std::move(part));
    }
    return std::make_unique<NormalizerChain>(std::move(parts));
  }
  c.unsupported();
}

}  // namespace keel

#include "keel/tokenizer/pipeline/pre_tokenizer.h"

#include <utf8proc.h>

#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {
namespace {

// A stretch of a piece: a match of the pattern or what lies between matches.
struct Stretch {
  Range range;
  bool match;
};

enum class Behavior { kRemoved, kIsolated, kPrevious, kNext, kContiguous };

Behavior parse_behavior(const Component& c) {
  const auto name = c.get<std::string>("behavior", "Isolated");
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kPrevious;
  if (name == "MergedWithNext") return Behavior::kNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  throw_invalid(
      "[{}.behavior] expected Removed, Isolated, MergedWithPrevious, MergedWithNext or "
      "Contiguous, got '{}'",
      c.where, name);
}

void join(const std::vector<Stretch>& stretches, Behavior behavior, std::vector<Range>& out) {
  bool previous_match = false;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& s = stretches[i];
    bool extend = false;
    switch (behavior) {
      case Behavior::kRemoved:
        if (s.match) continue;
        break;
      case Behavior::kIsolated:
        break;
      case Behavior::kPrevious:
        extend = i > 0 && s.match && !previous_match;
        break;
      case Behavior::kNext:
        extend = i > 0 && previous_match && !s.match;
        break;
      case Behavior::kContiguous:
        extend = i > 0 && s.match == previous_match;
        break;
    }
    if (extend) {
      out.back().end = s.range.end;
    } else {
      out.push_back(s.range);
    }
    previous_match = s.match;
  }
}

// Cuts every piece by a function that lists the matches of one piece.
template <class Find>
void split_pieces(Pieces& pieces, Behavior behavior, bool invert, Find&& find) {
  std::vector<Range> out;
  out.reserve(pieces.ranges.size() * 2);
  std::vector<Stretch> stretches;
  for (const Range range : pieces.ranges) {
    stretches.clear();
    size_t done = range.begin;
    find(range, [&](size_t begin, size_t end) {
      if (begin > done) stretches.push_back({{done, begin}, invert});
      stretches.push_back({{begin, end}, !invert});
      done = end;
    });
    if (done < range.end) stretches.push_back({{done, range.end}, invert});
    join(stretches, behavior, out);
  }
  pieces.ranges = std::move(out);
}

class Split : public PreTokenizer {
 public:
  explicit Split(const Component& c)
      : pattern_(c.child("pattern")),
        behavior_(parse_behavior(c)),
        invert_(c.get("invert", false)) {
    // The known patterns cover the whole text, so that these two make the same pieces.
    const bool whole = (behavior_ == Behavior::kIsolated && !invert_) ||
                       (behavior_ == Behavior::kRemoved && invert_);
    if (pattern_.regex() && whole) known_ = known_split(pattern_.regex()->pattern());
  }

  void apply(Pieces& pieces) const override {
    if (known_) {
      std::vector<Range> out;
      out.reserve(pieces.text.bytes.size() / 4);
      for (const Range r : pieces.ranges) split_known(*known_, pieces.text.bytes, r, out);
      pieces.ranges = std::move(out);
      return;
    }
    split_pieces(pieces, behavior_, invert_, [&](Range r, auto&& found) {
      pattern_.each(pieces.text.bytes, r.begin, r.end, found);
    });
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
  std::optional<KnownSplit> known_;
};

// Cuts by a property of single code points.
template <class Is>
class CodePointSplit : public PreTokenizer {
 public:
  CodePointSplit(Behavior behavior, Is is) : behavior_(behavior), is_(is) {}
  void apply(Pieces& pieces) const override {
    const char* text = pieces.text.bytes.data();
    split_pieces(pieces, behavior_, false, [&](Range r, auto&& found) {
      for (size_t i = r.begin; i < r.end;) {
        const unicode::CodePoint c = unicode::decode(text + i);
        if (is_(c.value)) found(i, i + c.num_bytes);
        i += c.num_bytes;
      }
    });
  }

 private:
  Behavior behavior_;
  Is is_;
};

template <class Is>
std::unique_ptr<PreTokenizer> code_point_split(Behavior behavior, Is is) {
  return std::make_unique<CodePointSplit<Is>>(behavior, is);
}

bool is_number(char32_t c) {
  return (unicode::classes(unicode::class_table(), c) & unicode::kNumber) != 0;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c > 0x20 && c < 0x30) || (c > 0x39 && c < 0x41) || (c > 0x5A && c < 0x61) ||
           (c > 0x7A && c < 0x7F);
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

// Rebuilds text and ranges piece by piece; change(piece, out) writes one piece.
template <class Change>
void rebuild(Pieces& pieces, Change&& change) {
  TextBuilder out(pieces.text);
  for (Range& range : pieces.ranges) {
    const size_t begin = out.size();
    change(range, out);
    range = {begin, out.size()};
  }
  pieces.text = out.finish();
}

class ByteLevel : public PreTokenizer {
 public:
  explicit ByteLevel(const Component& c)
      : add_prefix_space_(c.get("add_prefix_space", true)), use_regex_(c.get("use_regex", true)) {}

  void apply(Pieces& pieces) const override {
    if (add_prefix_space_) {
      rebuild(pieces, [&](Range r, TextBuilder& out) {
        if (r.begin < r.end && pieces.text.bytes[r.begin] != ' ') {
          out.insert(" ", pieces.text.span(r.begin));
        }
        out.keep(r.begin, r.end);
      });
    }
    if (!use_regex_) return;
    std::vector<Range> out;
    out.reserve(pieces.ranges.size() + pieces.text.bytes.size() / 4);
    for (const Range r : pieces.ranges) split_known(KnownSplit::kGpt2, pieces.text.bytes, r, out);
    pieces.ranges = std::move(out);
  }

 private:
  bool add_prefix_space_, use_regex_;
};

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(const Component& c)
      : replacement_(c.get<std::string>("replacement", "\xE2\x96\x81")),
        split_(c.get("split", true)) {
    scheme_ =
        c.get<std::string>("prepend_scheme", c.get("add_prefix_space", true) ? "always" : "never");
    KEEL_REQUIRE(scheme_ == "always" || scheme_ == "never" || scheme_ == "first",
                 "[{}.prepend_scheme] expected always, never or first, got '{}'", c.where, scheme_);
  }

  void apply(Pieces& pieces) const override {
    bool first = pieces.text.at_start;
    rebuild(pieces, [&](Range r, TextBuilder& out) { write(pieces.text, r, first, out); });
    if (!split_) return;
    split_pieces(pieces, Behavior::kNext, false, [&](Range r, auto&& found) {
      const std::string_view text(pieces.text.bytes.data(), r.end);
      for (size_t at = text.find(replacement_, r.begin); at != std::string_view::npos;
           at = text.find(replacement_, at + replacement_.size())) {
        found(at, at + replacement_.size());
      }
    });
  }

 private:
  void write(const Text& text, Range r, bool& first, TextBuilder& out) const {
    if (r.begin == r.end) return;
    const std::string_view piece = std::string_view(text.bytes).substr(r.begin, r.end - r.begin);
    const bool marked = piece[0] == ' ' || piece.starts_with(replacement_);
    if (!marked && (scheme_ == "always" || (scheme_ == "first" && first))) {
      out.insert(replacement_, text.span(r.begin));
    }
    first = false;
    size_t done = r.begin;
    for (size_t i = r.begin; i < r.end; ++i) {
      if (text.bytes[i] != ' ') continue;
      out.keep(done, i);
      out.insert(replacement_, text.span(i));
      done = i + 1;
    }
    out.keep(done, r.end);
  }

  std::string replacement_, scheme_;
  bool split_;
};

class PreTokenizerChain : public PreTokenizer {
 public:
  explicit PreTokenizerChain(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

// Words and runs of other signs, blanks removed.
class Whitespace : public PreTokenizer {
 public:
  explicit Whitespace(const std::string& where)
      : regex_(fmt::format(R"([{0}]+|[^{0}\s]+)", kWord), where) {}
  void apply(Pieces& pieces) const override {
    std::vector<Range> out;
    Regex::Matcher matcher(regex_);
    for (const Range r : pieces.ranges) {
      const std::string_view part =
          std::string_view(pieces.text.bytes).substr(r.begin, r.end - r.begin);
      for (size_t at = 0; at < part.size();) {
        const auto match = matcher.find(part, at);
        if (!match) break;
        out.push_back({r.begin + match->begin, r.begin + match->end});
        at = match->end;
      }
    }
    pieces.ranges = std::move(out);
  }

 private:
  // \w as Unicode's Annex 18 defines it; PCRE2 has a narrower one.
  static constexpr const char* kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";
  Regex regex_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Component& c, bool& byte_level) {
  if (c.json.is_null()) return nullptr;
  const std::string type = c.type();
  if (type == "Split") return std::make_unique<Split>(c);
  if (type == "Metaspace") return std::make_unique<Metaspace>(c);
  if (type == "Whitespace") return std::make_unique<Whitespace>(c.where);
  if (type == "WhitespaceSplit") return code_point_split(Behavior::kRemoved, unicode::is_space);
  if (type == "Punctuation") return code_point_split(parse_behavior(c), is_punctuation);
  if (type == "Digits") {
    return code_point_split(
        c.get("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous, is_number);
  }
  if (type == "ByteLevel") {
    byte_level = true;
    return std::make_unique<ByteLevel>(c);
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    const Component list = c.child("pretokenizers");
    for (size_t i = 0; i < list.json.size(); ++i) {
      KEEL_REQUIRE(!byte_level, "[{}[{}]] expected ByteLevel to be the last pre-tokenizer",
                   list.where, i);
      auto part =
          make_pre_tokenizer({list.json.at(i), fmt::format("{}[{}]", list.where, i)}, byte_level);
      if (part) parts.push_back(std::move(part));
    }
    return std::make_unique<PreTokenizerChain>(std::move(parts));
  }
  c.unsupported();
}

}  // namespace keel

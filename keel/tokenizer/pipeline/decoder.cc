#include "keel/tokenizer/pipeline/decoder.h"

#include <functional>

#include "keel/tokenizer/pipeline/byte_alphabet.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

class FunctionMaker : public DecodeStageMaker {
 public:
  explicit FunctionMaker(std::function<std::unique_ptr<DecodeStage>()> f) : f_(std::move(f)) {}
  std::unique_ptr<DecodeStage> make() const override { return f_(); }

 private:
  std::function<std::unique_ptr<DecodeStage>()> f_;
};

// Bytes from GPT-2's alphabet, joined to one token; broken UTF-8 becomes U+FFFD.
class ByteLevelStage : public DecodeStage {
 public:
  void push(const DecodePiece& in, std::vector<DecodePiece>& out) override {
    const auto bytes = bytes_of_alphabet(in.text);
    pending_ += bytes ? *bytes : in.text;
    emit(out, false);
  }
  void finish(std::vector<DecodePiece>& out) override { emit(out, true); }

 private:
  void emit(std::vector<DecodePiece>& out, bool final) {
    std::string text;
    pending_.erase(0, unicode::append_lossy(text, pending_, final));
    if (text.empty()) return;
    out.push_back({std::move(text), first_});
    first_ = false;
  }
  std::string pending_;
  bool first_ = true;
};

// Runs of "<0xNN>" become text, or one U+FFFD a byte if the run is not valid UTF-8. A run is held
// until it ends, because its last byte decides about its first.
class ByteFallbackStage : public DecodeStage {
 public:
  void push(const DecodePiece& in, std::vector<DecodePiece>& out) override {
    if (const int byte = byte_of(in.text); byte >= 0) {
      run_ += static_cast<char>(byte);
      return;
    }
    flush(out);
    out.push_back(in);
  }
  void finish(std::vector<DecodePiece>& out) override { flush(out); }

 private:
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const auto digit = std::string_view("0123456789ABCDEFabcdef").find(c);
      if (digit == std::string_view::npos) return -1;
      value = value * 16 + static_cast<int>(digit < 16 ? digit : digit - 6);
    }
    return value;
  }
  void flush(std::vector<DecodePiece>& out) {
    if (run_.empty()) return;
    if (unicode::is_valid(run_)) {
      out.push_back({run_, true});
    } else {
      for (size_t i = 0; i < run_.size(); ++i) out.push_back({kReplacement, true});
    }
    run_.clear();
  }
  std::string run_;
};

// From here on everything is one token.
class FuseStage : public DecodeStage {
 public:
  void push(const DecodePiece& in, std::vector<DecodePiece>& out) override {
    out.push_back({in.text, first_});
    first_ = false;
  }
  void finish(std::vector<DecodePiece>&) override {}

 private:
  bool first_ = true;
};

class ReplaceStage : public DecodeStage {
 public:
  ReplaceStage(const Pattern* pattern, std::string content)
      : pattern_(pattern), content_(std::move(content)) {}
  void push(const DecodePiece& in, std::vector<DecodePiece>& out) override {
    std::string text;
    size_t done = 0;
    pattern_->each(in.text, 0, in.text.size(), [&](size_t begin, size_t end) {
      text.append(in.text, done, begin - done).append(content_);
      done = end;
    });
    text.append(in.text, done);
    out.push_back({std::move(text), in.begins});
  }
  void finish(std::vector<DecodePiece>&) override {}

 private:
  const Pattern* pattern_;
  std::string content_;
};

// Takes up to `start` copies of `content` off the front of every token and `stop` off its end.
class StripStage : public DecodeStage {
 public:
  StripStage(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

  void push(const DecodePiece& in, std::vector<DecodePiece>& out) override {
    if (in.begins) {
      end_token();
      left_ = start_;
    }
    std::string_view text = in.text;
    while (left_ > 0 && !text.empty()) {
      if (text.starts_with(content_)) {
        text.remove_prefix(content_.size());
        --left_;
      } else {
        left_ = 0;
      }
    }
    held_ += text;
    // Copies at the end are held back until it is known whether the token ends there.
    size_t keep = held_.size();
    for (size_t n = 0; n < stop_ && std::string_view(held_).substr(0, keep).ends_with(content_);
         ++n) {
      keep -= content_.size();
    }
    out.push_back({held_.substr(0, keep), in.begins});
    held_.erase(0, keep);
  }
  void finish(std::vector<DecodePiece>&) override { end_token(); }

 private:
  void end_token() { held_.clear(); }
  std::string content_;
  size_t start_, stop_;
  size_t left_ = 0;
  std::string held_;
};

// U+2581 is a blank; in the first token it is nothing, if it was put there by the pre-tokenizer.
class MetaspaceStage : public DecodeStage {
 public:
  MetaspaceStage(std::string mark, bool drop_first) : mark_(std::move(mark)), drop_(drop_first) {}
  void push(const DecodePiece& in, std::vector<DecodePiece>& out) override {
    if (in.begins && seen_) drop_ = false;
    seen_ = true;
    std::string text;
    for (size_t at = 0; at < in.text.size();) {
      const size_t hit = std::min(in.text.find(mark_, at), in.text.size());
      text.append(in.text, at, hit - at);
      if (hit < in.text.size() && !drop_) text += ' ';
      at = hit + mark_.size();
    }
    out.push_back({std::move(text), in.begins});
  }
  void finish(std::vector<DecodePiece>&) override {}

 private:
  std::string mark_;
  bool drop_;
  bool seen_ = false;
};

template <class Stage, class... Args>
std::shared_ptr<const DecodeStageMaker> maker(Args... args) {
  return std::make_shared<FunctionMaker>([=] { return std::make_unique<Stage>(args...); });
}

}  // namespace

Decoder::Decoder(const Component& c) {
  if (!c.json.is_null()) read(c);
  only_byte_level_ = makers_.size() == 1 && !c.json.is_null() && c.type() == "ByteLevel";
}

void Decoder::read(const Component& c) {
  const std::string type = c.type();
  if (type == "ByteLevel") {
    makers_.push_back(maker<ByteLevelStage>());
    joined_ = true;
  } else if (type == "ByteFallback") {
    makers_.push_back(maker<ByteFallbackStage>());
  } else if (type == "Fuse") {
    makers_.push_back(maker<FuseStage>());
    joined_ = true;
  } else if (type == "Replace") {
    const auto pattern = std::make_shared<Pattern>(c.child("pattern"));
    const auto content = c.get<std::string>("content");
    // After joining, a longer match could lie across two pieces of the stream.
    KEEL_REQUIRE(!joined_ || unicode::count_code_points(pattern->literal()) == 1,
                 "[{}] expected a Replace of one character after ByteLevel or Fuse", c.where);
    makers_.push_back(std::make_shared<FunctionMaker>(
        [=] { return std::make_unique<ReplaceStage>(pattern.get(), content); }));
  } else if (type == "Strip") {
    const auto content = c.get<std::string>("content");
    KEEL_REQUIRE(unicode::count_code_points(content) == 1,
                 "[{}.content] expected one character, got '{}'", c.where, content);
    makers_.push_back(
        maker<StripStage>(content, c.get<size_t>("start", 0), c.get<size_t>("stop", 0)));
  } else if (type == "Metaspace") {
    const auto scheme =
        c.get<std::string>("prepend_scheme", c.get("add_prefix_space", true) ? "always" : "never");
    const auto mark = c.get<std::string>("replacement", "\xE2\x96\x81");
    KEEL_REQUIRE(!mark.empty(), "[{}.replacement] expected a character, got none", c.where);
    makers_.push_back(maker<MetaspaceStage>(mark, scheme != "never"));
  } else if (type == "Sequence") {
    const Component list = c.child("decoders");
    for (size_t i = 0; i < list.json.size(); ++i) {
      read({list.json.at(i), fmt::format("{}[{}]", list.where, i)});
    }
  } else {
    c.unsupported();
  }
}

std::vector<std::unique_ptr<DecodeStage>> Decoder::stages() const {
  std::vector<std::unique_ptr<DecodeStage>> out;
  for (const auto& m : makers_) out.push_back(m->make());
  return out;
}

}  // namespace keel

#include "keel/tokenizer/tokenizer.h"

#include <algorithm>

#include "keel/tokenizer/pipeline/tokenizer_impl.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {
namespace {

// Copying and printing JSON is recursive; rows that are deeper than this are refused first.
constexpr int kMaxRowDepth = 300;

bool deeper_than(const OrderedJson& json, int limit) {
  if (!json.is_structured()) return false;
  return limit == 0 || std::any_of(json.begin(), json.end(), [&](const OrderedJson& item) {
           return deeper_than(item, limit - 1);
         });
}

// The code points that the bytes of `part` lie in; `next` counts on through the text.
std::vector<Span> spans_of(std::string_view part, uint32_t& next) {
  std::vector<Span> spans;
  spans.reserve(part.size());
  for (const char c : part) {
    if (!unicode::is_continuation(c)) ++next;
    spans.push_back({next - 1, next});
  }
  return spans;
}

}  // namespace

void Tokenizer::Impl::encode_part(std::string_view part, std::vector<Span>* spans, bool at_start,
                                  ModelOutput& out, Encoding* offsets) const {
  Text text;
  text.bytes = part;
  text.at_start = at_start;
  text.tracked = spans != nullptr;
  if (spans) text.spans = std::move(*spans);
  if (normalizer) normalizer->apply(text);

  for (const auto& sub : normalized_added.split(text.bytes)) {
    const auto span = [&](size_t begin, size_t end) {
      offsets->offsets.emplace_back(text.span(begin).begin, text.span(end - 1).end);
    };
    if (sub.id >= 0) {
      out.ids.push_back(sub.id);
      if (offsets) span(sub.range.begin, sub.range.end);
      continue;
    }
    Pieces pieces;
    TextBuilder copy(text);
    copy.keep(sub.range.begin, sub.range.end);
    pieces.text = copy.finish();
    pieces.text.at_start = at_start && sub.range.begin == 0;
    if (!pieces.text.bytes.empty()) pieces.ranges.push_back({0, pieces.text.bytes.size()});
    if (pre_tokenizer) pre_tokenizer->apply(pieces);
    const std::string_view bytes = pieces.text.bytes;
    for (const Range r : pieces.ranges) {
      if (r.begin == r.end) continue;
      out.num_bytes.clear();
      model->tokenize(bytes.substr(r.begin, r.end - r.begin), out);
      if (!offsets) continue;
      size_t at = r.begin;
      for (const uint32_t n : out.num_bytes) {
        offsets->offsets.emplace_back(pieces.text.span(at).begin, pieces.text.span(at + n - 1).end);
        at += n;
      }
    }
  }
}

Encoding Tokenizer::Impl::encode(std::string_view text, bool add_special_tokens,
                                 bool want_offsets) const {
  std::string repaired;
  if (!unicode::is_valid(text)) {
    repaired = unicode::to_valid(text);
    text = repaired;
  }
  Encoding result;
  ModelOutput out;
  out.want_bytes = want_offsets;
  out.ids.reserve(text.size() / 3 + 8);
  if (add_special_tokens) {
    out.ids = post_processor.before;
    if (want_offsets) result.offsets.assign(out.ids.size(), {0, 0});
  }
  uint32_t code_points = 0;
  for (const auto& part : raw_added.split(text)) {
    const std::string_view bytes = text.substr(part.range.begin, part.range.end - part.range.begin);
    std::vector<Span> spans;
    if (want_offsets) spans = spans_of(bytes, code_points);
    if (part.id >= 0) {
      out.ids.push_back(part.id);
      if (want_offsets) result.offsets.emplace_back(spans.front().begin, spans.back().end);
    } else {
      encode_part(bytes, want_offsets ? &spans : nullptr, part.range.begin == 0, out,
                  want_offsets ? &result : nullptr);
    }
  }
  if (add_special_tokens) {
    out.ids.insert(out.ids.end(), post_processor.after.begin(), post_processor.after.end());
    if (want_offsets) result.offsets.resize(out.ids.size(), {0, 0});
  }
  result.ids = std::move(out.ids);
  return result;
}

std::optional<int32_t> Tokenizer::Impl::named_id(const std::string& name) const {
  const auto it = special_names.find(name);
  if (it == special_names.end()) return std::nullopt;
  const int32_t id = ids.find(it->second);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return impl_->encode(text, add_special_tokens, false).ids;
}

Encoding Tokenizer::encode_with_offsets(std::string_view text, bool add_special_tokens) const {
  return impl_->encode(text, add_special_tokens, true);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->tokens.size()); }

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const int32_t id = impl_->ids.find(token);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

const std::string& Tokenizer::token_of(int32_t id) const {
  static const std::string none;
  return id >= 0 && id < vocab_size() ? impl_->tokens[static_cast<size_t>(id)].text : none;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->tokens[static_cast<size_t>(id)].special;
}

std::optional<int32_t> Tokenizer::bos_id() const { return impl_->named_id("bos_token"); }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->named_id("eos_token"); }
std::optional<int32_t> Tokenizer::pad_id() const { return impl_->named_id("pad_token"); }

bool Tokenizer::has_chat_template() const { return impl_->templates.contains("default"); }

const ChatTemplate& Tokenizer::chat_template(bool with_tools) const {
  auto it = with_tools ? impl_->templates.find("tool_use") : impl_->templates.end();
  if (it == impl_->templates.end()) it = impl_->templates.find("default");
  KEEL_REQUIRE(it != impl_->templates.end(),
               "[tokenizer] expected a chat template in '{}', got none; add chat_template.jinja",
               impl_->dir);
  KEEL_REQUIRE(it->second.parsed != nullptr, "{}", it->second.error);
  return *it->second.parsed;
}

std::string Tokenizer::apply_chat_template(const OrderedJson& messages,
                                           const ChatOptions& options) const {
  const bool with_tools = options.tools.is_array() && !options.tools.empty();
  return chat_template(with_tools)
      .render(messages, options.tools, options.add_generation_prompt, options.kwargs,
              impl_->special_names);
}

struct IncrementalDecoder::State {
  std::shared_ptr<const Tokenizer> owner;
  const Tokenizer::Impl& impl;
  bool skip_special;
  bool bytes_only;
  bool first = true;
  std::string pending;  // bytes_only: the begun code point
  std::vector<std::unique_ptr<DecodeStage>> stages;

  State(std::shared_ptr<const Tokenizer> tokenizer, const Tokenizer::Impl& i, bool skip)
      : owner(std::move(tokenizer)),
        impl(i),
        skip_special(skip),
        bytes_only(i.decoder->only_byte_level()) {
    if (!bytes_only) stages = impl.decoder->stages();
  }

  void push(int32_t id, std::string& out) {
    if (id < 0 || static_cast<size_t>(id) >= impl.tokens.size()) return;
    const auto& token = impl.tokens[static_cast<size_t>(id)];
    if (!token.present || (skip_special && token.special)) return;
    if (bytes_only) {
      push_bytes(token.bytes, out);
    } else if (impl.decoder->joins_with_blanks()) {
      if (!first) out += ' ';
      out += token.text;
    } else {
      run({{token.text, true}}, 0, out);
    }
    first = false;
  }

  void finish(std::string& out) {
    if (bytes_only) {
      unicode::append_lossy(out, pending, true);
      pending.clear();
    }
    for (size_t i = 0; i < stages.size(); ++i) {
      std::vector<DecodePiece> rest;
      stages[i]->finish(rest);
      run(std::move(rest), i + 1, out);
    }
  }

 private:
  void push_bytes(std::string_view bytes, std::string& out) {
    if (!pending.empty()) {
      pending += bytes;
      pending.erase(0, unicode::append_lossy(out, pending, false));
      return;
    }
    pending = bytes.substr(unicode::append_lossy(out, bytes, false));
  }

  void run(std::vector<DecodePiece> pieces, size_t stage, std::string& out) {
    for (; stage < stages.size(); ++stage) {
      std::vector<DecodePiece> next;
      for (const DecodePiece& piece : pieces) stages[stage]->push(piece, next);
      pieces = std::move(next);
    }
    for (const DecodePiece& piece : pieces) out += piece.text;
  }
};

IncrementalDecoder::IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                                       bool skip_special_tokens) {
  const auto& impl = *tokenizer->impl_;
  state_ = std::make_unique<State>(std::move(tokenizer), impl, skip_special_tokens);
}
IncrementalDecoder::~IncrementalDecoder() = default;
IncrementalDecoder::IncrementalDecoder(IncrementalDecoder&&) noexcept = default;
IncrementalDecoder& IncrementalDecoder::operator=(IncrementalDecoder&&) noexcept = default;

std::string IncrementalDecoder::push(int32_t id) {
  std::string out;
  state_->push(id, out);
  return out;
}

std::string IncrementalDecoder::finish() {
  std::string out;
  state_->finish(out);
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  // No owner: the state does not outlive this call.
  IncrementalDecoder::State state(nullptr, *impl_, skip_special_tokens);
  std::string out;
  for (const int32_t id : ids) state.push(id, out);
  state.finish(out);
  return out;
}

OrderedJson run_tokenize_case(const Tokenizer& tokenizer, const OrderedJson& row) {
  KEEL_REQUIRE(row.is_object(), "[tokenize] expected an object, got {}", row.type_name());
  KEEL_REQUIRE(!deeper_than(row, kMaxRowDepth), "[tokenize] expected a row of at most {} levels",
               kMaxRowDepth);
  if (row.contains("messages")) {
    ChatOptions options;
    options.tools = row.value("tools", OrderedJson());
    options.kwargs = row.value("kwargs", OrderedJson());
    const std::string text = tokenizer.apply_chat_template(row["messages"], options);
    return {{"text", text}, {"ids", tokenizer.encode(text, false)}};
  }
  KEEL_REQUIRE(row.contains("text") && row["text"].is_string(),
               "[tokenize] expected a row with \"text\" (a string) or \"messages\", got {}",
               row.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).substr(0, 200));
  const auto special = row.find("add_special_tokens");
  const bool add = special != row.end() && special->is_boolean() && special->get<bool>();
  return {{"ids", tokenizer.encode(row["text"].get_ref<const std::string&>(), add)}};
}

}  // namespace keel

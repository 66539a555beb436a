// Reading the parts of tokenizer.json with errors that name file and key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/tokenizer/pipeline/regex.h"

namespace keel {

// One object of the file and where it stands, such as "DIR/tokenizer.json: normalizer".
struct Component {
  const Json& json;
  std::string where;

  std::string type() const { return get<std::string>("type"); }

  Component child(const std::string& key) const {
    KEEL_REQUIRE(json.is_object() && json.contains(key), "[{}] expected key '{}', got none", where,
                 key);
    return {json.at(key), where + "." + key};
  }

  template <class T>
  T get(const std::string& key) const {
    return as<T>(child(key));
  }

  template <class T>
  T get(const std::string& key, T fallback) const {
    if (!json.is_object() || !json.contains(key) || json.at(key).is_null()) return fallback;
    return as<T>(child(key));
  }

  [[noreturn]] void unsupported() const {
    throw_invalid("[{}] expected a component that keel knows, got '{}'; convert the tokenizer",
                  where, json.is_object() ? json.value("type", "?") : "?");
  }

 private:
  template <class T>
  static T as(const Component& c) {
    try {
      return c.json.get<T>();
    } catch (const Json::exception& e) {
      throw_invalid("[{}] got a value of the wrong type: {}", c.where, e.what());
    }
  }
};

// {"String": s} or {"Regex": r}.
class Pattern {
 public:
  explicit Pattern(const Component& c);

  // Calls found(begin, end) for every match in text[begin, end), left to right, without overlap;
  // empty matches are skipped.
  template <class F>
  void each(std::string_view text, size_t begin, size_t end, F&& found) const {
    if (!regex_) {
      for (size_t at = begin; at < end;) {
        const size_t hit = text.substr(0, end).find(literal_, at);
        if (hit == std::string_view::npos) return;
        found(hit, hit + literal_.size());
        at = hit + literal_.size();
      }
      return;
    }
    const std::string_view part = text.substr(begin, end - begin);
    Regex::Matcher matcher(*regex_);
    for (size_t at = 0; at < part.size();) {
      const auto match = matcher.find(part, at);
      if (!match) return;
      if (match->end > match->begin) {
        found(begin + match->begin, begin + match->end);
        at = match->end;
      } else {
        at = match->end;
        do {
          ++at;
        } while (at < part.size() && (static_cast<unsigned char>(part[at]) & 0xC0) == 0x80);
      }
    }
  }

  // The expression, or nullptr for a literal.
  const Regex* regex() const { return regex_.get(); }
  const std::string& literal() const { return literal_; }

 private:
  std::string literal_;
  std::shared_ptr<const Regex> regex_;
};

}  // namespace keel

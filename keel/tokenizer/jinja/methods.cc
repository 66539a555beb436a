// Methods of strings, lists, dicts and loops.
#include <algorithm>

#include "keel/tokenizer/jinja/context.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel::jinja {
namespace {

// str.startswith / endswith: one string or a list of them.
bool matches_any(const std::string& s, const Value& what, bool at_end, const std::string& method) {
  const auto one = [&](const Value& v) {
    KEEL_REQUIRE(v.is_string(), "[chat template] expected a string for '{}', got {}", method,
                 v.type_name());
    return at_end ? s.ends_with(v.str()) : s.starts_with(v.str());
  };
  if (!what.is_list()) return one(what);
  return std::any_of(what.items().begin(), what.items().end(), one);
}

Value to_list(std::vector<std::string> parts, Budget& budget) {
  Values out;
  for (auto& part : parts) {
    budget.bytes(part.size() + sizeof(Value) + 32);
    out.emplace_back(std::move(part));
  }
  return Value::list(std::move(out));
}

std::vector<std::string> split_at(const std::string& s, const std::string& separator,
                                  int64_t limit) {
  KEEL_REQUIRE(!separator.empty(), "[chat template] expected a separator that is not empty");
  std::vector<std::string> parts;
  size_t done = 0;
  for (; limit != 0; --limit) {
    const size_t hit = s.find(separator, done);
    if (hit == std::string::npos) break;
    parts.push_back(s.substr(done, hit - done));
    done = hit + separator.size();
  }
  parts.push_back(s.substr(done));
  return parts;
}

std::vector<std::string> rsplit_at(const std::string& s, const std::string& separator,
                                   int64_t limit) {
  KEEL_REQUIRE(!separator.empty(), "[chat template] expected a separator that is not empty");
  std::vector<std::string> parts;
  size_t end = s.size();
  for (; limit != 0 && end >= separator.size(); --limit) {
    const size_t hit = s.rfind(separator, end - separator.size());
    if (hit == std::string::npos) break;
    parts.push_back(s.substr(hit + separator.size(), end - hit - separator.size()));
    end = hit;
  }
  parts.push_back(s.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// split() at runs of white space.
std::vector<std::string> split_words(const std::string& s, int64_t limit) {
  std::vector<std::string> parts;
  std::string rest = strip(s, nullptr, Side::kLeft);
  while (!rest.empty()) {
    if (limit-- == 0) {
      parts.push_back(rest);
      break;
    }
    size_t end = 0;
    while (end < rest.size()) {
      const size_t n = unicode::decode(rest.data() + end).num_bytes;
      if (strip(rest.substr(end, n), nullptr, Side::kBoth).empty()) break;
      end += n;
    }
    parts.push_back(rest.substr(0, end));
    // The tail is cut once per word; words of a chat template's input are few.
    rest = strip(rest.substr(end), nullptr, Side::kLeft);
  }
  return parts;
}

std::vector<std::string> split_lines(const std::string& s, bool keep_ends) {
  std::vector<std::string> lines;
  size_t done = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\n' && s[i] != '\r') continue;
    const size_t end = i;
    if (s[i] == '\r' && i + 1 < s.size() && s[i + 1] == '\n') ++i;
    lines.push_back(s.substr(done, (keep_ends ? i + 1 : end) - done));
    done = i + 1;
  }
  if (done < s.size()) lines.push_back(s.substr(done));
  return lines;
}

// Code points before byte `at`, or -1.
int64_t point_index(const std::string& s, size_t at) {
  if (at == std::string::npos) return -1;
  return static_cast<int64_t>(unicode::count_code_points(std::string_view(s).substr(0, at)));
}

bool all_of_class(const std::string& s, uint8_t classes) {
  const auto points = unicode::to_code_points(s);
  return !points.empty() && std::all_of(points.begin(), points.end(), [&](char32_t c) {
    return (unicode::classes(unicode::class_table(), c) & classes) != 0;
  });
}

std::string pad(const std::string& s, int64_t width, bool left, Budget& budget) {
  const auto n = static_cast<int64_t>(unicode::count_code_points(s));
  if (width <= n) return s;
  budget.bytes(static_cast<size_t>(width - n));
  const std::string fill(static_cast<size_t>(width - n), ' ');
  return left ? fill + s : s + fill;
}

class StringMethods {
 public:
  StringMethods(const std::string& s, const std::string& name, const Arguments& args, Context& ctx)
      : s_(s), name_(name), args_(args), ctx_(ctx) {}

  bool call(Value& out) const { return change(out) || split(out) || search(out) || ask(out); }

 private:
  const std::string* optional_string(size_t index, std::string_view name) const {
    const Value* v = args_.get(index, name);
    return v && !v->is_none() ? &args_.need_string(index, name, name_) : nullptr;
  }

  bool change(Value& out) const {
    ctx_.budget.bytes(s_.size());
    if (name_ == "strip") return out = strip(s_, optional_string(0, "chars"), Side::kBoth), true;
    if (name_ == "lstrip") return out = strip(s_, optional_string(0, "chars"), Side::kLeft), true;
    if (name_ == "rstrip") return out = strip(s_, optional_string(0, "chars"), Side::kRight), true;
    if (name_ == "upper") return out = upper(s_), true;
    if (name_ == "lower" || name_ == "casefold") return out = lower(s_), true;
    if (name_ == "title") return out = title(s_), true;
    if (name_ == "capitalize") return out = capitalize(s_), true;
    if (name_ == "ljust" || name_ == "rjust") {
      out = pad(s_, args_.get_int(0, "width", name_, 0), name_ == "rjust", ctx_.budget);
      return true;
    }
    if (name_ == "replace") {
      out = replace(s_, args_.need_string(0, "old", name_), args_.need_string(1, "new", name_),
                    args_.get_int(2, "count", name_, -1), ctx_.budget);
      return true;
    }
    if (name_ == "removeprefix") {
      const std::string& prefix = args_.need_string(0, "prefix", name_);
      return out = s_.starts_with(prefix) ? s_.substr(prefix.size()) : s_, true;
    }
    if (name_ == "removesuffix") {
      const std::string& suffix = args_.need_string(0, "suffix", name_);
      return out = s_.ends_with(suffix) ? s_.substr(0, s_.size() - suffix.size()) : s_, true;
    }
    return false;
  }

  bool split(Value& out) const {
    if (name_ == "splitlines") {
      return out = to_list(split_lines(s_, args_.flag(0, "keepends", false)), ctx_.budget), true;
    }
    if (name_ == "join") {
      std::string text;
      bool first = true;
      for (const Value& v : iterate(args_.need(0, "iterable", name_), ctx_.budget)) {
        KEEL_REQUIRE(v.is_string(), "[chat template] expected strings to join, got {}",
                     v.type_name());
        if (!std::exchange(first, false)) text += s_;
        text += v.str();
        ctx_.budget.bytes(s_.size() + v.str().size());
      }
      return out = std::move(text), true;
    }
    if (name_ != "split" && name_ != "rsplit") return false;
    const std::string* separator = optional_string(0, "sep");
    const int64_t limit = args_.get_int(1, "maxsplit", name_, -1);
    if (!separator) {
      KEEL_REQUIRE(name_ == "split" || limit < 0,
                   "[chat template] expected a separator for rsplit with maxsplit");
      return out = to_list(split_words(s_, limit), ctx_.budget), true;
    }
    out = to_list(
        name_ == "split" ? split_at(s_, *separator, limit) : rsplit_at(s_, *separator, limit),
        ctx_.budget);
    return true;
  }

  bool search(Value& out) const {
    if (name_ == "startswith" || name_ == "endswith") {
      return out = matches_any(s_, args_.need(0, "prefix", name_), name_ == "endswith", name_),
             true;
    }
    if (name_ == "find") {
      return out = point_index(s_, s_.find(args_.need_string(0, "sub", name_))), true;
    }
    if (name_ == "rfind") {
      return out = point_index(s_, s_.rfind(args_.need_string(0, "sub", name_))), true;
    }
    if (name_ == "index") {
      const int64_t i = point_index(s_, s_.find(args_.need_string(0, "sub", name_)));
      KEEL_REQUIRE(i >= 0, "[chat template] substring not found");
      return out = i, true;
    }
    if (name_ == "count") {
      const std::string& sub = args_.need_string(0, "sub", name_);
      if (sub.empty()) return out = point_index(s_, s_.size()) + 1, true;
      return out = static_cast<int64_t>(split_at(s_, sub, -1).size()) - 1, true;
    }
    return false;
  }

  bool ask(Value& out) const {
    if (name_ == "isdigit" || name_ == "isnumeric" || name_ == "isdecimal") {
      return out = all_of_class(s_, unicode::kNumber), true;
    }
    if (name_ == "isalpha") return out = all_of_class(s_, unicode::kLetter), true;
    if (name_ == "isalnum") {
      return out = all_of_class(s_, unicode::kLetter | unicode::kNumber), true;
    }
    if (name_ == "isspace") return out = all_of_class(s_, unicode::kSpace), true;
    if (name_ == "isupper") return out = upper(s_) == s_ && lower(s_) != s_, true;
    if (name_ == "islower") return out = lower(s_) == s_ && upper(s_) != s_, true;
    return false;
  }

  const std::string& s_;
  const std::string& name_;
  const Arguments& args_;
  Context& ctx_;
};

bool list_method(const Values& items, const std::string& name, const Arguments& args, Context& ctx,
                 Value& out) {
  if (name == "count" || name == "index") {
    const Value& wanted = args.need(0, "value", name);
    int64_t count = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!equal(items[i], wanted, ctx.budget)) continue;
      if (name == "index") return out = static_cast<int64_t>(i), true;
      ++count;
    }
    KEEL_REQUIRE(name == "count", "[chat template] expected the value in the list");
    return out = count, true;
  }
  for (const char* changing : {"append", "extend", "insert", "pop", "remove", "sort", "reverse"}) {
    KEEL_REQUIRE(name != changing,
                 "[chat template] expected no change of a list, got '{}'; use a namespace", name);
  }
  return false;
}

bool dict_method(const Value& dict, const std::string& name, const Arguments& args, Context& ctx,
                 Value& out) {
  if (name == "get") {
    const Value* v = dict.find(args.need(0, "key", name), ctx.budget);
    return out = v ? *v : args.get_or(1, "default", None{}), true;
  }
  if (name == "copy") return out = dict, true;
  if (name == "items" || name == "keys" || name == "values") {
    Values items;
    for (const auto& [key, value] : dict.pairs()) {
      ctx.budget.step();
      if (name == "items") {
        items.push_back(Value::list({key, value}, true));
      } else {
        items.push_back(name == "keys" ? key : value);
      }
    }
    ctx.budget.bytes(items.size() * 3 * sizeof(Value));
    return out = Value::list(std::move(items)), true;
  }
  for (const char* changing : {"update", "pop", "popitem", "setdefault", "clear"}) {
    KEEL_REQUIRE(name != changing,
                 "[chat template] expected no change of a dict, got '{}'; use a namespace", name);
  }
  return false;
}

bool loop_method(const Loop& loop, const std::string& name, const Arguments& args, Value& out) {
  if (name != "cycle") return false;
  KEEL_REQUIRE(!args.positional.empty(), "[chat template] expected arguments for loop.cycle");
  return out = args.positional[loop.index % args.positional.size()], true;
}

}  // namespace

bool call_method(const Value& object, const std::string& name, const Arguments& args, Context& ctx,
                 Value& result) {
  if (object.is_string()) return StringMethods(object.str(), name, args, ctx).call(result);
  if (object.is_list()) return list_method(object.items(), name, args, ctx, result);
  if (object.is_dict()) return dict_method(object, name, args, ctx, result);
  if (object.is_loop()) return loop_method(object.loop(), name, args, result);
  return false;
}

}  // namespace keel::jinja

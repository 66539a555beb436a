// Filters and the functions that stand in the global scope.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <unordered_map>

#include "keel/tokenizer/jinja/context.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&, Context&);

// Filters on text take any value, as Jinja's do, by its str().
template <std::string (*F)(const std::string&)>
Value text_filter(const Value& v, const Arguments&, Context& ctx) {
  return F(to_text(v, ctx.budget));
}

// Jinja's filter, unlike Python's method, begins words only after blanks and opening signs.
std::string title_words(const std::string& s) {
  std::string out, word;
  const auto flush = [&] {
    out += capitalize(word);
    word.clear();
  };
  for (size_t i = 0; i < s.size();) {
    const size_t n = unicode::decode(s.data() + i).num_bytes;
    const std::string c = s.substr(i, n);
    i += n;
    const bool breaks = std::string_view("-({[<").find(c) != std::string_view::npos ||
                        strip(c, nullptr, Side::kBoth).empty();
    word += c;
    if (breaks) flush();
  }
  flush();
  return out;
}

// "a.b.0" or 0: one step after the other.
Value walk(const Value& from, const Value& path, Context& ctx) {
  if (!path.is_string()) return ctx.item(from, path);
  Value v = from;
  const std::string& text = path.str();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    int64_t index = 0;
    const auto [ptr, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = error == std::errc() && ptr == part.data() + part.size();
    v = ctx.item(v, number ? Value(index) : Value(part));
    begin = end + 1;
  }
  return v;
}

Value tojson(const Value& v, const Arguments& args, Context& ctx) {
  JsonStyle style;
  style.ensure_ascii = args.flag(0, "ensure_ascii", false);
  if (const Value* indent = args.get(1, "indent"); indent && !indent->is_none()) {
    style.indent =
        static_cast<int>(std::clamp<int64_t>(args.get_int(1, "indent", "tojson", 0), 0, 64));
    style.item_separator.assign(1, ',');
  }
  if (const Value* separators = args.get(2, "separators"); separators && !separators->is_none()) {
    const Values both = iterate(*separators, ctx.budget);
    KEEL_REQUIRE(both.size() == 2 && both[0].is_string() && both[1].is_string(),
                 "[chat template] expected two separators for tojson");
    style.item_separator = both[0].str();
    style.key_separator = both[1].str();
  }
  style.sort_keys = args.flag(3, "sort_keys", false);
  return to_json(v, style, ctx.budget);
}

Value length(const Value& v, const Arguments&, Context&) {
  if (v.is_string()) return static_cast<int64_t>(unicode::count_code_points(v.str()));
  if (v.is_list()) return static_cast<int64_t>(v.items().size());
  if (v.is_dict()) return static_cast<int64_t>(v.pairs().size());
  KEEL_REQUIRE(v.is_undefined(), "[chat template] expected something with a length, got {}",
               v.type_name());
  return int64_t{0};
}

Value trim(const Value& v, const Arguments& args, Context& ctx) {
  const Value* chars = args.get(0, "chars");
  const bool given = chars && !chars->is_none();
  return strip(to_text(v, ctx.budget), given ? &args.need_string(0, "chars", "trim") : nullptr,
               Side::kBoth);
}

Value join(const Value& v, const Arguments& args, Context& ctx) {
  const std::string separator = to_text(args.get_or(0, "d", ""), ctx.budget);
  const Value* path = args.get(1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& item : iterate(v, ctx.budget)) {
    if (!std::exchange(first, false)) out += separator;
    ctx.budget.bytes(separator.size());
    out += to_text(path ? walk(item, *path, ctx) : item, ctx.budget);
  }
  return out;
}

Value default_value(const Value& v, const Arguments& args, Context&) {
  const bool missing = v.is_undefined() || (args.flag(1, "boolean", false) && !v.truthy());
  return missing ? args.get_or(0, "default_value", "") : v;
}

Value replace_filter(const Value& v, const Arguments& args, Context& ctx) {
  const std::string from = to_text(args.need(0, "old", "replace"), ctx.budget);
  const std::string to = to_text(args.need(1, "new", "replace"), ctx.budget);
  return replace(to_text(v, ctx.budget), from, to, args.get_int(2, "count", "replace", -1),
                 ctx.budget);
}

Value first(const Value& v, const Arguments&, Context& ctx) {
  const Values items = iterate(v, ctx.budget);
  return items.empty() ? Value(Undefined{"No first item, sequence was empty."}) : items.front();
}

Value last(const Value& v, const Arguments&, Context& ctx) {
  const Values items = iterate(v, ctx.budget);
  return items.empty() ? Value(Undefined{"No last item, sequence was empty."}) : items.back();
}

Value items(const Value& v, const Arguments& args, Context& ctx) {
  if (v.is_undefined()) return Value::list({});
  Value out;
  KEEL_REQUIRE(v.is_dict() && call_method(v, "items", args, ctx, out),
               "[chat template] expected a dict for items, got {}", v.type_name());
  return out;
}

Value list(const Value& v, const Arguments&, Context& ctx) {
  return Value::list(iterate(v, ctx.budget));
}

Value string(const Value& v, const Arguments&, Context& ctx) { return to_text(v, ctx.budget); }

Value same(const Value& v, const Arguments&, Context&) { return v; }

Value escape(const Value& v, const Arguments&, Context& ctx) {
  std::string out;
  for (const char c : to_text(v, ctx.budget)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  ctx.budget.bytes(out.size());
  return out;
}

std::optional<double> parse_double(const std::string& text) {
  const std::string t = strip(text, nullptr, Side::kBoth);
  const char* begin = t.data() + (t.starts_with('+') ? 1 : 0);
  double d = 0;
  const auto [ptr, error] = std::from_chars(begin, t.data() + t.size(), d);
  if (error != std::errc() || ptr != t.data() + t.size()) return std::nullopt;
  return d;
}

Value to_int(const Value& v, const Arguments& args, Context&) {
  const Value fallback = args.get_or(0, "default", int64_t{0});
  if (v.is_integral()) return v.as_int();
  std::optional<double> d;
  if (v.is_string()) {
    const std::string t = strip(v.str(), nullptr, Side::kBoth);
    const char* begin = t.data() + (t.starts_with('+') ? 1 : 0);
    int64_t i = 0;
    const auto base =
        static_cast<int>(std::clamp<int64_t>(args.get_int(1, "base", "int", 10), 2, 36));
    const auto [ptr, error] = std::from_chars(begin, t.data() + t.size(), i, base);
    if (error == std::errc() && ptr == t.data() + t.size()) return i;
    d = parse_double(t);
  } else if (v.is_float()) {
    d = v.as_double();
  }
  if (!d || !(std::fabs(*d) < 9.2e18)) return fallback;
  return static_cast<int64_t>(*d);
}

Value to_float(const Value& v, const Arguments& args, Context&) {
  if (v.is_number()) return v.as_double();
  const auto d = v.is_string() ? parse_double(v.str()) : std::nullopt;
  return d ? Value(*d) : args.get_or(0, "default", 0.0);
}

Value absolute(const Value& v, const Arguments&, Context&) {
  KEEL_REQUIRE(v.is_number(), "[chat template] expected a number for abs, got {}", v.type_name());
  if (v.is_float()) return std::fabs(v.as_double());
  KEEL_REQUIRE(v.as_int() > INT64_MIN, "[chat template] expected integers that fit into 64 bits");
  return std::abs(v.as_int());
}

Value round(const Value& v, const Arguments& args, Context&) {
  KEEL_REQUIRE(v.is_number(), "[chat template] expected a number for round, got {}", v.type_name());
  const auto precision = std::clamp<int64_t>(args.get_int(0, "precision", "round", 0), -300, 300);
  const Value method = args.get_or(1, "method", "common");
  const bool common = !method.is_string() || (method.str() != "ceil" && method.str() != "floor");
  if (common && v.is_integral() && precision >= 0) return v.as_int();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = v.as_double() * scale;
  if (method.is_string() && method.str() == "ceil") return std::ceil(scaled) / scale;
  if (method.is_string() && method.str() == "floor") return std::floor(scaled) / scale;
  return std::nearbyint(scaled) / scale;
}

// What sort, min, max and unique compare: an attribute, without case for strings.
class SortKey {
 public:
  SortKey(const Arguments& args, size_t case_index, size_t attribute_index, Context& ctx)
      : case_sensitive_(args.flag(case_index, "case_sensitive", false)),
        path_(args.get(attribute_index, "attribute")),
        ctx_(ctx) {}
  Value operator()(const Value& v) const {
    Value key = path_ && !path_->is_none() ? walk(v, *path_, ctx_) : v;
    return key.is_string() && !case_sensitive_ ? Value(lower(key.str())) : key;
  }

 private:
  bool case_sensitive_;
  const Value* path_;
  Context& ctx_;
};

Value sort(const Value& v, const Arguments& args, Context& ctx) {
  const bool reverse = args.flag(0, "reverse", false);
  const SortKey key(args, 1, 2, ctx);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(v, ctx.budget)) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first, ctx.budget) : less(a.first, b.first, ctx.budget);
  });
  Values out;
  for (auto& pair : keyed) out.push_back(std::move(pair.second));
  return Value::list(std::move(out));
}

template <bool kLargest>
Value extreme(const Value& v, const Arguments& args, Context& ctx) {
  const SortKey key(args, 0, 1, ctx);
  Value best = Undefined{"No aggregated item, sequence was empty."};
  for (const Value& item : iterate(v, ctx.budget)) {
    const bool better = best.is_undefined() || (kLargest ? less(key(best), key(item), ctx.budget)
                                                         : less(key(item), key(best), ctx.budget));
    if (better) best = item;
  }
  return best;
}

Value unique(const Value& v, const Arguments& args, Context& ctx) {
  const SortKey key(args, 0, 1, ctx);
  Values keys, out;
  for (const Value& item : iterate(v, ctx.budget)) {
    const Value k = key(item);
    const bool seen = std::any_of(keys.begin(), keys.end(),
                                  [&](const Value& old) { return equal(old, k, ctx.budget); });
    if (seen) continue;
    keys.push_back(k);
    out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value reverse(const Value& v, const Arguments&, Context& ctx) {
  Values parts = iterate(v, ctx.budget);
  std::reverse(parts.begin(), parts.end());
  if (!v.is_string()) return Value::list(std::move(parts));
  std::string out;
  for (const Value& part : parts) out += part.str();
  return out;
}

Value sum(const Value& v, const Arguments& args, Context& ctx) {
  const Value* path = args.get(0, "attribute");
  const Value start = args.get_or(1, "start", int64_t{0});
  int64_t whole = start.is_integral() ? start.as_int() : 0;
  double real = start.is_float() ? start.as_double() : 0;
  bool is_real = start.is_float();
  for (const Value& item : iterate(v, ctx.budget)) {
    const Value x = path && !path->is_none() ? walk(item, *path, ctx) : item;
    KEEL_REQUIRE(x.is_number(), "[chat template] expected numbers to sum, got {}", x.type_name());
    if (x.is_float()) {
      is_real = true;
      real += x.as_double();
    } else {
      KEEL_REQUIRE(!__builtin_add_overflow(whole, x.as_int(), &whole),
                   "[chat template] expected integers that fit into 64 bits");
    }
  }
  if (is_real) return real + static_cast<double>(whole);
  return whole;
}

Value dictsort(const Value& v, const Arguments& args, Context& ctx) {
  KEEL_REQUIRE(v.is_dict(), "[chat template] expected a dict for dictsort, got {}", v.type_name());
  Arguments rest;
  const Value by = args.get_or(1, "by", "key");
  const int64_t index = by.is_string() && by.str() == "value" ? 1 : 0;
  rest.named = {{"case_sensitive", args.get_or(0, "case_sensitive", false)},
                {"reverse", args.get_or(2, "reverse", false)},
                {"attribute", index}};
  return sort(items(v, {}, ctx), rest, ctx);
}

Value indent(const Value& v, const Arguments& args, Context& ctx) {
  const Value width = args.get_or(0, "width", int64_t{4});
  std::string fill;
  if (width.is_string()) {
    fill = width.str();
  } else {
    fill.assign(
        static_cast<size_t>(std::clamp<int64_t>(args.get_int(0, "width", "indent", 4), 0, 1000)),
        ' ');
  }
  const bool blank = args.flag(2, "blank", false);
  std::string out = args.flag(1, "first", false) ? fill : "";
  const std::string text = to_text(v, ctx.budget);
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] != '\n') continue;
    const bool empty_line = i + 1 == text.size() || text[i + 1] == '\n';
    if (!empty_line || blank) {
      ctx.budget.bytes(fill.size());
      out += fill;
    }
  }
  return out;
}

Value wordcount(const Value& v, const Arguments&, Context& ctx) {
  Value words;
  call_method(Value(to_text(v, ctx.budget)), "split", {}, ctx, words);
  return static_cast<int64_t>(words.items().size());
}

Value attribute(const Value& v, const Arguments& args, Context& ctx) {
  const std::string& name = args.need_string(0, "name", "attr");
  // Unlike `v.name`, this does not look at items.
  if (v.is_dict()) return Undefined{"'dict object' has no attribute '" + name + "'"};
  return ctx.attribute(v, name);
}

Arguments tail(const Arguments& args, size_t from) {
  Arguments rest = args;
  rest.positional.erase(
      rest.positional.begin(),
      rest.positional.begin() + static_cast<ptrdiff_t>(std::min(from, rest.positional.size())));
  return rest;
}

Value map(const Value& v, const Arguments& args, Context& ctx) {
  const Context::Depth guard(ctx);
  const Value* path = args.positional.empty() ? args.get(0, "attribute") : nullptr;
  const Value* fallback = args.get(99, "default");
  Values out;
  for (const Value& item : iterate(v, ctx.budget)) {
    if (path) {
      Value got = walk(item, *path, ctx);
      out.push_back(got.is_undefined() && fallback ? *fallback : std::move(got));
    } else {
      const std::string& name = args.need_string(0, "filter", "map");
      KEEL_REQUIRE(is_filter(name), "[chat template] expected a filter that keel knows, got '{}'",
                   name);
      out.push_back(apply_filter(name, item, tail(args, 1), ctx));
    }
  }
  return Value::list(std::move(out));
}

// select, reject (kAttribute: selectattr, rejectattr): keep items whose test says kKeep.
template <bool kKeep, bool kAttribute>
Value choose(const Value& v, const Arguments& args, Context& ctx) {
  const Context::Depth guard(ctx);
  constexpr size_t kTest = kAttribute ? 1 : 0;
  const bool has_test = args.positional.size() > kTest;
  if (has_test) {
    const std::string& test = args.need_string(kTest, "test", "select");
    KEEL_REQUIRE(is_test(test), "[chat template] expected a test that keel knows, got '{}'", test);
  }
  Values out;
  for (const Value& item : iterate(v, ctx.budget)) {
    const Value x = kAttribute ? walk(item, args.need(0, "attribute", "selectattr"), ctx) : item;
    const bool yes = has_test
                         ? apply_test(args.positional[kTest].str(), x, tail(args, kTest + 1), ctx)
                         : x.truthy();
    if (yes == kKeep) out.push_back(item);
  }
  return Value::list(std::move(out));
}

const std::unordered_map<std::string, Filter>& filters() {
  static const std::unordered_map<std::string, Filter> table = {
      {"tojson", tojson},
      {"length", length},
      {"count", length},
      {"trim", trim},
      {"join", join},
      {"upper", text_filter<upper>},
      {"lower", text_filter<lower>},
      {"title", text_filter<title_words>},
      {"capitalize", text_filter<capitalize>},
      {"default", default_value},
      {"d", default_value},
      {"replace", replace_filter},
      {"first", first},
      {"last", last},
      {"items", items},
      {"list", list},
      {"string", string},
      {"safe", same},
      {"escape", escape},
      {"e", escape},
      {"int", to_int},
      {"float", to_float},
      {"abs", absolute},
      {"round", round},
      {"sort", sort},
      {"min", extreme<false>},
      {"max", extreme<true>},
      {"unique", unique},
      {"reverse", reverse},
      {"sum", sum},
      {"dictsort", dictsort},
      {"indent", indent},
      {"wordcount", wordcount},
      {"attr", attribute},
      {"map", map},
      {"select", choose<true, false>},
      {"reject", choose<false, false>},
      {"selectattr", choose<true, true>},
      {"rejectattr", choose<false, true>},
  };
  return table;
}

Value range(const Arguments& args, Budget& budget) {
  const int64_t a = args.get_int(0, "start", "range", 0);
  const bool one = args.positional.size() < 2;
  const int64_t begin = one ? 0 : a, end = one ? a : args.get_int(1, "stop", "range", 0);
  const int64_t step = args.get_int(2, "step", "range", 1);
  KEEL_REQUIRE(step != 0, "[chat template] expected a range step other than 0");
  constexpr int64_t kMaxRange = 100'000;  // Jinja's sandbox has the same limit
  Values out;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    KEEL_REQUIRE(static_cast<int64_t>(out.size()) < kMaxRange,
                 "[chat template] expected a range of at most {} numbers", kMaxRange);
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget.step(static_cast<int64_t>(out.size()));
  budget.bytes(out.size() * sizeof(Value));
  return Value::list(std::move(out));
}

std::string strftime_now(const std::string& format) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[1024];
  const size_t n = std::strftime(buffer, sizeof(buffer), format.c_str(), &local);
  return unicode::to_valid(std::string_view(buffer, n));
}

}  // namespace

bool is_filter(const std::string& name) { return filters().contains(name); }

Value apply_filter(const std::string& name, const Value& input, const Arguments& args,
                   Context& ctx) {
  ctx.budget.step();
  const auto it = filters().find(name);
  KEEL_CHECK(it != filters().end(), "filter '{}'", name);
  return it->second(input, args, ctx);
}

Value call_function(Function function, const Arguments& args, Context& ctx) {
  ctx.budget.step();
  switch (function) {
    case Function::kRange:
      return range(args, ctx.budget);
    case Function::kStrftimeNow:
      return strftime_now(args.need_string(0, "format", "strftime_now"));
    case Function::kRaise:
      throw_invalid("[chat template] the template says: {}",
                    to_text(args.get_or(0, "message", ""), ctx.budget));
    case Function::kNamespace: {
      Namespace* space = ctx.make_namespace();
      ctx.budget.bytes(sizeof(Namespace));
      for (const auto& [name, value] : args.named) space->attributes.emplace_back(name, value);
      return space;
    }
    case Function::kDict: {
      Pairs pairs = !args.positional.empty() && args.positional[0].is_dict()
                        ? args.positional[0].pairs()
                        : Pairs{};
      for (const auto& [name, value] : args.named) {
        std::erase_if(pairs,
                      [&](const auto& p) { return p.first.is_string() && p.first.str() == name; });
        pairs.emplace_back(name, value);
      }
      return Value::dict(std::move(pairs));
    }
  }
  return {};
}

}  // namespace keel::jinja

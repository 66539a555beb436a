// What each expression gives.
#include <cmath>

#include "keel/tokenizer/jinja/context.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel::jinja {
namespace {

std::string one_code_point(const std::string& s, int64_t index) {
  const auto points = unicode::to_code_points(s);
  std::string out;
  unicode::append(out, points[static_cast<size_t>(index)]);
  return out;
}

// Python's rule for negative and missing slice bounds.
struct SliceRange {
  int64_t start, stop, step;
};

SliceRange slice_range(const Value& start, const Value& stop, const Value& step, int64_t size) {
  const auto bound = [&](const Value& v, int64_t fallback, int64_t low, int64_t high) {
    if (v.is_none()) return fallback;
    KEEL_REQUIRE(v.is_integral(), "[chat template] expected integers in a slice, got {}",
                 v.type_name());
    int64_t i = v.as_int();
    if (i < 0) i += size;
    return std::clamp(i, low, high);
  };
  SliceRange r{0, 0, 1};
  if (!step.is_none()) {
    KEEL_REQUIRE(step.is_integral() && step.as_int() != 0,
                 "[chat template] expected a slice step other than 0");
    r.step = std::clamp<int64_t>(step.as_int(), -(1ll << 40), 1ll << 40);
  }
  if (r.step > 0) {
    r.start = bound(start, 0, 0, size);
    r.stop = bound(stop, size, 0, size);
  } else {
    r.start = bound(start, size - 1, -1, size - 1);
    r.stop = bound(stop, -1, -1, size - 1);
  }
  return r;
}

template <class F>
void each_index(const SliceRange& r, F&& f) {
  for (int64_t i = r.start; r.step > 0 ? i < r.stop : i > r.stop; i += r.step)
    f(static_cast<size_t>(i));
}

int64_t checked(bool overflow, int64_t value) {
  KEEL_REQUIRE(!overflow, "[chat template] expected integers that fit into 64 bits");
  return value;
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) {  // a / -1 may overflow
    int64_t r = 0;
    const bool overflow = __builtin_sub_overflow(int64_t{0}, a, &r);
    return checked(overflow, r);
  }
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Value int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (result == 0 || (base == 1 && result == 1)) break;
    if (base == -1) return int64_t{exponent % 2 == 0 ? 1 : -1};
    const bool overflow = __builtin_mul_overflow(result, base, &result);
    checked(overflow, result);
  }
  return result;
}

Value int_arithmetic(BinaryOp op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &r);
      break;
    case BinaryOp::kSub:
      overflow = __builtin_sub_overflow(a, b, &r);
      break;
    case BinaryOp::kMul:
      overflow = __builtin_mul_overflow(a, b, &r);
      break;
    case BinaryOp::kPow:
      return int_power(a, b);
    default:
      KEEL_REQUIRE(b != 0, "[chat template] expected no division by zero");
      if (op == BinaryOp::kDiv) return static_cast<double>(a) / static_cast<double>(b);
      return op == BinaryOp::kMod ? floor_mod(a, b) : floor_div(a, b);
  }
  return checked(overflow, r);
}

Value float_arithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kPow:
      return std::pow(a, b);
    default:
      break;
  }
  KEEL_REQUIRE(b != 0, "[chat template] expected no division by zero");
  if (op == BinaryOp::kDiv) return a / b;
  if (op == BinaryOp::kFloorDiv) return std::floor(a / b);
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Value repeat(const Value& sequence, int64_t count, Budget& budget) {
  count = std::max<int64_t>(count, 0);
  if (sequence.is_string()) {
    const std::string& s = sequence.str();
    if (s.empty()) return "";
    KEEL_REQUIRE(count <= budget.bytes_left / static_cast<int64_t>(s.size()),
                 "[chat template] expected less text");
    budget.bytes(s.size() * static_cast<size_t>(count));
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += s;
    return out;
  }
  Values out;
  const Values& items = sequence.items();
  if (items.empty()) return sequence;
  KEEL_REQUIRE(count <= budget.steps_left / static_cast<int64_t>(items.size()),
               "[chat template] expected a shorter list");
  budget.bytes(items.size() * static_cast<size_t>(count) * sizeof(Value));
  for (int64_t i = 0; i < count; ++i) {
    budget.step(static_cast<int64_t>(items.size()));
    out.insert(out.end(), items.begin(), items.end());
  }
  return Value::list(std::move(out));
}

Value arithmetic(BinaryOp op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_integral() && b.is_integral()) return int_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.as_double(), b.as_double());
  if (op == BinaryOp::kAdd && a.is_string() && b.is_string()) {
    budget.bytes(a.str().size() + b.str().size());
    return a.str() + b.str();
  }
  if (op == BinaryOp::kAdd && a.is_list() && b.is_list()) {
    budget.step(static_cast<int64_t>(a.items().size() + b.items().size()));
    budget.bytes((a.items().size() + b.items().size()) * sizeof(Value));
    Values out = a.items();
    out.insert(out.end(), b.items().begin(), b.items().end());
    return Value::list(std::move(out));
  }
  const auto repeats = [](const Value& s, const Value& n) {
    return (s.is_string() || s.is_list()) && n.is_integral();
  };
  if (op == BinaryOp::kMul && repeats(a, b)) return repeat(a, b.as_int(), budget);
  if (op == BinaryOp::kMul && repeats(b, a)) return repeat(b, a.as_int(), budget);
  for (const Value* v : {&a, &b}) {
    KEEL_REQUIRE(!v->is_undefined(), "[chat template] {}", v->undefined_hint());
  }
  throw_invalid("[chat template] expected operands that fit together, got {} and {}", a.type_name(),
                b.type_name());
}

Value loop_attribute(const Loop& loop, const std::string& name, const Undefined& missing) {
  const auto n = static_cast<int64_t>(loop.items.items().size());
  const auto i = static_cast<int64_t>(loop.index);
  if (name == "index") return i + 1;
  if (name == "index0") return i;
  if (name == "first") return i == 0;
  if (name == "last") return i == n - 1;
  if (name == "length") return n;
  if (name == "revindex") return n - i;
  if (name == "revindex0") return n - i - 1;
  if (name == "depth") return int64_t{1};  // only recursive loops go deeper
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") return i > 0 ? loop.items.items()[loop.index - 1] : Value(missing);
  if (name == "nextitem") return i + 1 < n ? loop.items.items()[loop.index + 1] : Value(missing);
  return missing;
}

}  // namespace

Value Context::attribute(const Value& object, const std::string& name) {
  KEEL_REQUIRE(!object.is_undefined(), "[chat template] {}", object.undefined_hint());
  if (object.is_dict()) {
    if (const Value* v = object.find(name, budget)) return *v;
  }
  Undefined missing{fmt::format("'{} object' has no attribute '{}'", object.type_name(), name)};
  if (object.is_loop()) return loop_attribute(object.loop(), name, missing);
  if (const Namespace* space = object.as_namespace()) {
    for (const auto& [key, value] : space->attributes) {
      if (key == name) return value;
    }
  }
  return missing;
}

Value Context::item(const Value& object, const Value& key) {
  if (object.is_dict()) {
    if (const Value* v = object.find(key, budget)) return *v;
  }
  if (key.is_integral() && (object.is_list() || object.is_string())) {
    const auto size = static_cast<int64_t>(
        object.is_list() ? object.items().size() : unicode::count_code_points(object.str()));
    const int64_t i = key.as_int() < 0 ? key.as_int() + size : key.as_int();
    budget.step(object.is_string() ? size / 16 : 1);
    if (i >= 0 && i < size) {
      if (object.is_list()) return object.items()[static_cast<size_t>(i)];
      return one_code_point(object.str(), i);
    }
    return Undefined{fmt::format("'{} object' has no element {}", object.type_name(), i)};
  }
  if (key.is_string()) return attribute(object, key.str());
  KEEL_REQUIRE(!object.is_undefined(), "[chat template] {}", object.undefined_hint());
  return Undefined{fmt::format("'{} object' has no element {}", object.type_name(),
                               to_repr(key, budget).substr(0, 100))};
}

Value ListExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  Values out;
  for (const auto& e : items) out.push_back(e->eval(ctx));
  return Value::list(std::move(out), tuple);
}

Value DictExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  Pairs out;
  for (const auto& [key, e] : items) {
    const Value k = key->eval(ctx);
    KEEL_REQUIRE(!k.is_list() && !k.is_dict(), "[chat template] expected a dict key, got {}",
                 k.type_name());
    Value v = e->eval(ctx);
    bool found = false;
    for (auto& [old_key, old] : out) {
      if (!equal(old_key, k, ctx.budget)) continue;
      old = v;
      found = true;
    }
    if (!found) out.emplace_back(k, std::move(v));
  }
  return Value::dict(std::move(out));
}

Value AttributeExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  const Value o = object->eval(ctx);
  return ctx.attribute(o, name);
}

Value ItemExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  const Value o = object->eval(ctx);
  return ctx.item(o, key->eval(ctx));
}

Value SliceExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  const Value o = object->eval(ctx);
  const auto part = [&](const ExprPtr& e) { return e ? e->eval(ctx) : Value(None{}); };
  const Value first = part(start), last = part(stop), by = part(step);
  if (o.is_string()) {
    const auto points = unicode::to_code_points(o.str());
    ctx.budget.bytes(o.str().size() * sizeof(char32_t));
    const SliceRange r = slice_range(first, last, by, static_cast<int64_t>(points.size()));
    std::string out;
    each_index(r, [&](size_t i) { unicode::append(out, points[i]); });
    return out;
  }
  KEEL_REQUIRE(!o.is_undefined(), "[chat template] {}", o.undefined_hint());
  KEEL_REQUIRE(o.is_list(), "[chat template] expected a string or list to slice, got {}",
               o.type_name());
  Values out;
  each_index(slice_range(first, last, by, static_cast<int64_t>(o.items().size())),
             [&](size_t i) { out.push_back(o.items()[i]); });
  ctx.budget.step(static_cast<int64_t>(out.size()));
  ctx.budget.bytes(out.size() * sizeof(Value));
  return Value::list(std::move(out));
}

Value UnaryExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  const Value v = operand->eval(ctx);
  if (op == UnaryOp::kNot) return !v.truthy();
  KEEL_REQUIRE(!v.is_undefined(), "[chat template] {}", v.undefined_hint());
  KEEL_REQUIRE(v.is_number(), "[chat template] expected a number, got {}", v.type_name());
  if (op == UnaryOp::kPlus) return v;
  if (v.is_float()) return -v.as_double();
  return int_arithmetic(BinaryOp::kSub, 0, v.as_int());
}

Value BinaryExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  Value a = left->eval(ctx);
  if (op == BinaryOp::kAnd) return a.truthy() ? right->eval(ctx) : a;
  if (op == BinaryOp::kOr) return a.truthy() ? a : right->eval(ctx);
  const Value b = right->eval(ctx);
  if (op == BinaryOp::kConcat) return to_text(a, ctx.budget) + to_text(b, ctx.budget);
  return arithmetic(op, a, b, ctx.budget);
}

Value CompareExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  Value a = first->eval(ctx);
  for (const auto& [op, e] : rest) {
    Value b = e->eval(ctx);
    bool holds = false;
    switch (op) {
      case CompareOp::kEq:
        holds = equal(a, b, ctx.budget);
        break;
      case CompareOp::kNe:
        holds = !equal(a, b, ctx.budget);
        break;
      case CompareOp::kLt:
        holds = less(a, b, ctx.budget);
        break;
      case CompareOp::kGt:
        holds = less(b, a, ctx.budget);
        break;
      case CompareOp::kLe:
        holds = less(a, b, ctx.budget) || equal(a, b, ctx.budget);
        break;
      case CompareOp::kGe:
        holds = less(b, a, ctx.budget) || equal(a, b, ctx.budget);
        break;
      case CompareOp::kIn:
        holds = contains(b, a, ctx.budget);
        break;
      case CompareOp::kNotIn:
        holds = !contains(b, a, ctx.budget);
        break;
    }
    if (!holds) return false;
    a = std::move(b);
  }
  return true;
}

Value ConditionalExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  if (test->eval(ctx).truthy()) return yes->eval(ctx);
  if (no) return no->eval(ctx);
  return Undefined{"the inline if-expression evaluated to false and no else section was defined"};
}

Value FilterExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  const Value v = operand->eval(ctx);
  return apply_filter(name, v, ctx.evaluate(arguments), ctx);
}

Value TestExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  const Value v = operand->eval(ctx);
  return apply_test(name, v, ctx.evaluate(arguments), ctx) != negated;
}

}  // namespace keel::jinja

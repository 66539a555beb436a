#include <algorithm>

#include "keel/reward/math/value.h"

namespace keel::math {
namespace {

bool same(const Value& a, const Value& b);

bool same_in_order(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

// As sets: each is in the other.
bool same_members(const std::vector<Value>& a, const std::vector<Value>& b) {
  const auto inside = [](const std::vector<Value>& from, const std::vector<Value>& of) {
    return std::all_of(from.begin(), from.end(), [&](const Value& x) {
      return std::any_of(of.begin(), of.end(), [&](const Value& y) { return same(x, y); });
    });
  };
  return inside(a, b) && inside(b, a);
}

bool same_numbers(const Value& a, const Value& b) {
  if (!a.unit.empty() && !b.unit.empty() && a.unit != b.unit) return false;
  if (equal(a.number, b.number)) return true;
  if (a.percent == b.percent) return false;
  // 30% is 0.3 as well
  const Number hundred(mpq_class(100));
  return a.percent ? equal(divide(a.number, hundred), b.number)
                   : equal(a.number, divide(b.number, hundred));
}

bool same(const Value& a, const Value& b) {
  if (!a.variable.empty() && !b.variable.empty() && a.variable != b.variable) return false;
  if (a.kind != b.kind) {
    if (a.kind == Kind::kSet && a.items.size() == 1) return same(a.items[0], b);
    if (b.kind == Kind::kSet && b.items.size() == 1) return same(a, b.items[0]);
    return false;
  }
  switch (a.kind) {
    case Kind::kNumber:
      return same_numbers(a, b);
    case Kind::kInfinity:
      return equal(a.number, b.number);
    case Kind::kSequence:
      return a.open == b.open && a.close == b.close && same_in_order(a.items, b.items);
    case Kind::kMatrix:
      return same_in_order(a.items, b.items);
    case Kind::kSet:
    case Kind::kUnion:
      return same_members(a.items, b.items);
    case Kind::kText:
      return a.text == b.text;
    case Kind::kEquation:
      return false;  // see same_equations
  }
  return false;
}

bool has_sides(const Value& v) {
  return v.items.size() == 2 &&
         (v.kind == Kind::kEquation || (v.kind == Kind::kNumber && !v.variable.empty())) &&
         v.items[0].kind == Kind::kNumber && v.items[1].kind == Kind::kNumber;
}

// left - right of one is a constant times that of the other, at all points.
class EquationRatio {
 public:
  bool add(const Value& a, const Value& b) {
    const auto x = subtract(a.items[0].number, a.items[1].number);
    const auto y = subtract(b.items[0].number, b.items[1].number);
    if (x.is_zero() || y.is_zero()) return false;
    const auto ratio = divide(x, y);
    if (ratio_ && !equal(*ratio_, ratio)) return false;
    ratio_ = ratio;
    return true;
  }

 private:
  std::optional<Number> ratio_;
};

}  // namespace

bool same_value(std::string_view answer, std::string_view ground_truth) {
  try {
    EquationRatio ratio;
    for (int point = 0; point < kNumPoints; ++point) {
      const auto gold = parse_value(ground_truth, point);
      if (!gold) return false;
      const auto value = parse_value(answer, point);
      if (!value) return false;
      const bool equations =
          gold->kind == Kind::kEquation || value->kind == Kind::kEquation ||
          (gold->variable != value->variable && has_sides(*gold) && has_sides(*value));
      if (equations ? !has_sides(*gold) || !has_sides(*value) || !ratio.add(*value, *gold)
                    : !same(*value, *gold)) {
        return false;
      }
    }
    return true;
  } catch (const MathError&) {
    return false;
  }
}

}  // namespace keel::math

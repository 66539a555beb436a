// A number of an answer: an exact rational when it is one, and always a complex approximation.
// Every operation is bounded: results beyond kMaxBits throw MathError instead of growing.
#pragma once

#include <gmpxx.h>

#include <complex>
#include <optional>
#include <stdexcept>

namespace keel::math {

// The text is no value that we can work with; it equals nothing.
struct MathError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Complex = std::complex<long double>;

class Number {
 public:
  Number() : Number(mpq_class(0)) {}
  explicit Number(mpq_class exact);
  explicit Number(Complex approx);

  bool is_exact() const { return exact_.has_value(); }
  const mpq_class& exact() const { return *exact_; }
  Complex approx() const { return approx_; }
  bool is_zero() const { return exact_ ? *exact_ == 0 : approx_ == Complex(0); }

  // The exact integer in [lo, hi], or nullopt.
  std::optional<long> integer(long lo, long hi) const;

 private:
  std::optional<mpq_class> exact_;
  Complex approx_;
};

Number add(const Number& a, const Number& b);
Number subtract(const Number& a, const Number& b);
Number multiply(const Number& a, const Number& b);
Number divide(const Number& a, const Number& b);
Number power(const Number& base, const Number& exponent);
Number root(const Number& a, long degree);
Number absolute(const Number& a);
Number factorial(const Number& n);
Number binomial(const Number& n, const Number& k);

// Exact where both are exact. An exact number equals an approximate one only if it is simple (a
// few digits): a long decimal is a rounded root, not the root.
bool equal(const Number& a, const Number& b);

}  // namespace keel::math

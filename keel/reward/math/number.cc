#include "keel/reward/math/number.h"

#include <cmath>

namespace keel::math {
namespace {

constexpr size_t kMaxBits = 40000;    // of a numerator or denominator
constexpr size_t kSimpleBits = 40;    // about 12 digits together
constexpr long kMaxFactorial = 1000;  // 8530 bits
constexpr long double kTolerance = 1e-14L;

size_t bits(const mpz_class& z) { return mpz_sizeinbase(z.get_mpz_t(), 2); }
size_t bits(const mpq_class& q) { return std::max(bits(q.get_num()), bits(q.get_den())); }

long double to_long_double(const mpq_class& q) {
  const double high = q.get_d();
  if (!std::isfinite(high)) return high;
  return static_cast<long double>(high) + mpq_class(q - mpq_class(high)).get_d();
}

mpq_class integer_power(const mpq_class& base, long exponent) {
  if (base == 0 && exponent < 0) throw MathError("division by zero");
  const unsigned long n = static_cast<unsigned long>(std::labs(exponent));
  if (base != 0 && base != 1 && base != -1 && bits(base) * n > kMaxBits)
    throw MathError("power too large");
  mpq_class out;
  mpz_pow_ui(out.get_num_mpz_t(), base.get_num_mpz_t(), n);
  mpz_pow_ui(out.get_den_mpz_t(), base.get_den_mpz_t(), n);
  if (exponent >= 0) return out;
  mpq_inv(out.get_mpq_t(), out.get_mpq_t());
  return out;
}

// The exact root if there is one.
std::optional<mpq_class> exact_root(const mpq_class& q, unsigned long degree) {
  if (q < 0 && degree % 2 == 0) return std::nullopt;
  mpq_class out;
  if (mpz_root(out.get_num_mpz_t(), q.get_num_mpz_t(), degree) == 0) return std::nullopt;
  if (mpz_root(out.get_den_mpz_t(), q.get_den_mpz_t(), degree) == 0) return std::nullopt;
  return out;
}

}  // namespace

Number::Number(mpq_class exact) : exact_(std::move(exact)) {
  exact_->canonicalize();
  if (bits(*exact_) > kMaxBits) throw MathError("number too large");
  approx_ = Complex(to_long_double(*exact_));
}

Number::Number(Complex approx) : approx_(approx) {
  if (!std::isfinite(approx.real()) || !std::isfinite(approx.imag())) throw MathError("not finite");
}

std::optional<long> Number::integer(long lo, long hi) const {
  if (!exact_ || exact_->get_den() != 1 || *exact_ < lo || *exact_ > hi) return std::nullopt;
  return exact_->get_num().get_si();
}

Number add(const Number& a, const Number& b) {
  if (a.is_exact() && b.is_exact()) return Number(mpq_class(a.exact() + b.exact()));
  return Number(a.approx() + b.approx());
}

Number subtract(const Number& a, const Number& b) {
  if (a.is_exact() && b.is_exact()) return Number(mpq_class(a.exact() - b.exact()));
  return Number(a.approx() - b.approx());
}

Number multiply(const Number& a, const Number& b) {
  if (a.is_exact() && b.is_exact()) return Number(mpq_class(a.exact() * b.exact()));
  return Number(a.approx() * b.approx());
}

Number divide(const Number& a, const Number& b) {
  if (b.is_zero()) throw MathError("division by zero");
  if (a.is_exact() && b.is_exact()) return Number(mpq_class(a.exact() / b.exact()));
  return Number(a.approx() / b.approx());
}

Number power(const Number& base, const Number& exponent) {
  constexpr long kMaxExponent = 100000;
  if (base.is_exact()) {
    if (const auto n = exponent.integer(-kMaxExponent, kMaxExponent))
      return Number(integer_power(base.exact(), *n));
  }
  if (base.is_exact() && exponent.is_exact()) {  // (p/q)^(a/b)
    const auto a = Number(mpq_class(exponent.exact().get_num())).integer(-1000, 1000);
    const auto b = Number(mpq_class(exponent.exact().get_den())).integer(1, 60);
    if (b == 1) throw MathError("power too large");
    if (a && b) return power(root(base, *b), Number(mpq_class(*a)));
  }
  if (base.is_zero()) throw MathError("zero to an inexact power");
  return Number(std::pow(base.approx(), exponent.approx()));
}

Number root(const Number& a, long degree) {
  if (degree < 2 || degree > 1000) throw MathError("root of this degree");
  if (a.is_exact()) {
    if (const auto r = exact_root(a.exact(), static_cast<unsigned long>(degree))) return Number(*r);
    if (a.exact() < 0 && degree % 2 == 1) {  // the real root of a negative number
      return Number(Complex(
          -std::pow(std::fabs(a.approx().real()), 1.0L / static_cast<long double>(degree))));
    }
  }
  if (degree == 2) return Number(std::sqrt(a.approx()));
  return Number(std::pow(a.approx(), Complex(1.0L / static_cast<long double>(degree))));
}

Number absolute(const Number& a) {
  if (a.is_exact()) return Number(mpq_class(abs(a.exact())));
  return Number(Complex(std::abs(a.approx())));
}

Number factorial(const Number& n) {
  const auto k = n.integer(0, kMaxFactorial);
  if (!k) throw MathError("factorial of this");
  mpz_class out;
  mpz_fac_ui(out.get_mpz_t(), static_cast<unsigned long>(*k));
  return Number(mpq_class(out));
}

Number binomial(const Number& n, const Number& k) {
  const auto top = n.integer(0, kMaxFactorial), bottom = k.integer(0, kMaxFactorial);
  if (!top || !bottom) throw MathError("binomial of this");
  mpz_class out;
  mpz_bin_uiui(out.get_mpz_t(), static_cast<unsigned long>(*top),
               static_cast<unsigned long>(*bottom));
  return Number(mpq_class(out));
}

bool equal(const Number& a, const Number& b) {
  if (a.is_exact() && b.is_exact()) return a.exact() == b.exact();
  for (const auto* n : {&a, &b}) {
    if (n->is_exact() && bits(n->exact().get_num()) + bits(n->exact().get_den()) > kSimpleBits)
      return false;
  }
  const auto scale = std::max({std::abs(a.approx()), std::abs(b.approx()), 1e-6L});
  return std::abs(a.approx() - b.approx()) <= kTolerance * scale;
}

}  // namespace keel::math

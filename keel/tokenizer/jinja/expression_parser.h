// Recursive descent over the tokens of a tag, by Jinja's precedence.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "keel/tokenizer/jinja/ast.h"
#include "keel/tokenizer/jinja/lexer.h"

namespace keel::jinja {

// Reads expressions off a list of tokens.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, const std::string& where)
      : tokens_(std::move(tokens)), where_(where) {}

 protected:
  using Kind = TokenKind;

  struct Nesting {
    explicit Nesting(ExpressionParser& p) : parser(p) {
      if (++parser.nesting_ > kMaxNesting) parser.fail("expected less nesting");
    }
    ~Nesting() { --parser.nesting_; }
    ExpressionParser& parser;
  };

  [[noreturn]] void fail(const std::string& message) const {
    throw_invalid("[{}:{}] {}", where_, peek().line, message);
  }

  static std::string describe(const Token& t) {
    switch (t.kind) {
      case Kind::kBlockBegin:
        return "{%";
      case Kind::kBlockEnd:
        return "%}";
      case Kind::kVariableBegin:
        return "{{";
      case Kind::kVariableEnd:
        return "}}";
      case Kind::kEnd:
        return "end of template";
      default:
        return t.text;
    }
  }

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() {
    const Token& t = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return t;
  }
  bool is_op(std::string_view op, size_t ahead = 0) const {
    return peek(ahead).kind == Kind::kOperator && peek(ahead).text == op;
  }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).kind == Kind::kName && peek(ahead).text == name;
  }
  bool take_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool take_name(std::string_view name) { return is_name(name) && (next(), true); }
  void expect_op(std::string_view op) {
    if (!take_op(op)) fail(fmt::format("expected '{}', got '{}'", op, describe(peek())));
  }
  void expect_name(std::string_view name) {
    if (!take_name(name)) fail(fmt::format("expected '{}', got '{}'", name, describe(peek())));
  }
  void expect(Kind kind, const char* what) {
    if (peek().kind != kind) fail(fmt::format("expected '{}', got '{}'", what, describe(peek())));
    next();
  }
  std::string identifier() {
    if (peek().kind != Kind::kName) fail("expected a name, got '" + describe(peek()) + "'");
    return next().text;
  }

  // Sets the depth from the children and checks it.
  template <class T>
  ExprPtr finish(std::unique_ptr<T> node, std::initializer_list<const Expr*> children,
                 const ArgumentList* arguments = nullptr) {
    int depth = node->depth;
    const auto see = [&](const Expr* e) {
      if (e) depth = std::max(depth, e->depth + 1);
    };
    for (const Expr* e : children) see(e);
    if (arguments) {
      for (const auto& e : arguments->positional) see(e.get());
      for (const auto& [name, e] : arguments->named) see(e.get());
    }
    if (depth > kMaxTreeDepth) fail("expected a shorter expression");
    node->depth = depth;
    return node;
  }

  // From the loosest binding to the tightest.
  // One expression, or a list of several with commas.
  ExprPtr parse_tuple(bool conditional);
  bool begins_expression() const;
  ExprPtr parse_expression();
  ExprPtr binary(int line, BinaryOp op, ExprPtr left, ExprPtr right);
  ExprPtr unary(int line, UnaryOp op, ExprPtr operand);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  std::optional<CompareOp> take_compare();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr literal(int line, Value value);
  ExprPtr parse_primary();
  template <class T>
  ExprPtr parse_number() {
    const Token& t = peek();
    T value{};
    const char* end = t.text.data() + t.text.size();
    const auto result = std::from_chars(t.text.data(), end, value);
    if (result.ec != std::errc() || result.ptr != end) {
      fail("expected a number that fits, got '" + t.text + "'");
    }
    next();
    return literal(t.line, value);
  }
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ArgumentList parse_arguments();
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filters(ExprPtr node);
  ExprPtr parse_filter(ExprPtr operand);
  ExprPtr parse_test(ExprPtr operand);
  // "x is divisibleby 3": a primary may follow without brackets.
  bool begins_test_argument() const;

 private:
  static constexpr int kMaxNesting = 150;    // brackets and blocks inside each other
  static constexpr int kMaxTreeDepth = 250;  // also a ~ b ~ c ... makes a deep tree

  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace keel::jinja

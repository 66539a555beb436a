#include "keel/tokenizer/jinja/expression_parser.h"

#include "keel/tokenizer/jinja/builtins.h"

namespace keel::jinja {

ExprPtr ExpressionParser::parse_tuple(bool conditional) {
  const int line = peek().line;
  ExprPtr first = conditional ? parse_expression() : parse_or();
  if (!is_op(",")) return first;
  auto list = std::make_unique<ListExpr>(line, true);
  list->depth = first->depth + 1;
  list->items.push_back(std::move(first));
  while (take_op(",")) {
    if (!begins_expression()) break;
    list->items.push_back(conditional ? parse_expression() : parse_or());
    list->depth = std::max(list->depth, list->items.back()->depth + 1);
  }
  return finish(std::move(list), {});
}

bool ExpressionParser::begins_expression() const {
  const Token& t = peek();
  return t.kind != Kind::kVariableEnd && t.kind != Kind::kBlockEnd && t.kind != Kind::kEnd &&
         !is_op(")") && !is_op("]") && !is_op("}") && !is_op("=");
}

ExprPtr ExpressionParser::parse_expression() {
  const Nesting guard(*this);
  const int line = peek().line;
  ExprPtr value = parse_or();
  while (take_name("if")) {
    auto node = std::make_unique<ConditionalExpr>(line);
    node->yes = std::move(value);
    node->test = parse_or();
    if (take_name("else")) node->no = parse_expression();
    const Expr *yes = node->yes.get(), *test = node->test.get(), *no = node->no.get();
    value = finish(std::move(node), {yes, test, no});
  }
  return value;
}

ExprPtr ExpressionParser::binary(int line, BinaryOp op, ExprPtr left, ExprPtr right) {
  const Expr *a = left.get(), *b = right.get();
  return finish(std::make_unique<BinaryExpr>(line, op, std::move(left), std::move(right)), {a, b});
}

ExprPtr ExpressionParser::unary(int line, UnaryOp op, ExprPtr operand) {
  const Expr* e = operand.get();
  return finish(std::make_unique<UnaryExpr>(line, op, std::move(operand)), {e});
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name("or")) {
    const int line = next().line;
    left = binary(line, BinaryOp::kOr, std::move(left), parse_and());
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name("and")) {
    const int line = next().line;
    left = binary(line, BinaryOp::kAnd, std::move(left), parse_not());
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nesting guard(*this);
  const int line = next().line;
  return unary(line, UnaryOp::kNot, parse_not());
}

std::optional<CompareOp> ExpressionParser::take_compare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<=", CompareOp::kLe},
      {">=", CompareOp::kGe}, {"<", CompareOp::kLt},  {">", CompareOp::kGt}};
  for (const auto& [text, op] : kOps) {
    if (take_op(text)) return op;
  }
  if (take_name("in")) return CompareOp::kIn;
  if (is_name("not") && is_name("in", 1)) {
    next();
    next();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

ExprPtr ExpressionParser::parse_compare() {
  const int line = peek().line;
  ExprPtr first = parse_sum();
  auto op = take_compare();
  if (!op) return first;
  auto node = std::make_unique<CompareExpr>(line, std::move(first));
  int depth = node->first->depth;
  for (; op; op = take_compare()) {
    node->rest.emplace_back(*op, parse_sum());
    depth = std::max(depth, node->rest.back().second->depth);
  }
  node->depth = depth + 1;
  return finish(std::move(node), {});
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_op("+") || is_op("-")) {
    const Token& t = next();
    left = binary(t.line, t.text == "+" ? BinaryOp::kAdd : BinaryOp::kSub, std::move(left),
                  parse_concat());
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr left = parse_product();
  while (is_op("~")) {
    const int line = next().line;
    left = binary(line, BinaryOp::kConcat, std::move(left), parse_product());
  }
  return left;
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  for (;;) {
    const int line = peek().line;
    BinaryOp op;
    if (take_op("*")) {
      op = BinaryOp::kMul;
    } else if (take_op("/")) {
      op = BinaryOp::kDiv;
    } else if (take_op("//")) {
      op = BinaryOp::kFloorDiv;
    } else if (take_op("%")) {
      op = BinaryOp::kMod;
    } else {
      return left;
    }
    left = binary(line, op, std::move(left), parse_power());
  }
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (is_op("**")) {
    const int line = next().line;
    left = binary(line, BinaryOp::kPow, std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nesting guard(*this);
  const int line = peek().line;
  ExprPtr node;
  if (take_op("-")) {
    node = unary(line, UnaryOp::kMinus, parse_unary(false));
  } else if (take_op("+")) {
    node = unary(line, UnaryOp::kPlus, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::literal(int line, Value value) {
  return std::make_unique<LiteralExpr>(line, std::move(value));
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& t = peek();
  switch (t.kind) {
    case Kind::kName: {
      next();
      if (t.text == "true" || t.text == "True") return literal(t.line, true);
      if (t.text == "false" || t.text == "False") return literal(t.line, false);
      if (t.text == "none" || t.text == "None") return literal(t.line, None{});
      return std::make_unique<NameExpr>(t.line, t.text);
    }
    case Kind::kString: {
      std::string text = next().text;
      while (peek().kind == Kind::kString) text += next().text;
      return literal(t.line, std::move(text));
    }
    case Kind::kInteger:
      return parse_number<int64_t>();
    case Kind::kFloat:
      return parse_number<double>();
    default:
      break;
  }
  if (take_op("(")) {
    ExprPtr inner;
    if (is_op(")")) {
      inner = std::make_unique<ListExpr>(t.line, true);
    } else {
      inner = parse_tuple(true);
    }
    expect_op(")");
    return inner;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  fail("expected an expression, got '" + describe(t) + "'");
}

ExprPtr ExpressionParser::parse_list() {
  auto node = std::make_unique<ListExpr>(peek().line);
  expect_op("[");
  while (!is_op("]")) {
    node->items.push_back(parse_expression());
    node->depth = std::max(node->depth, node->items.back()->depth + 1);
    if (!take_op(",")) break;
  }
  expect_op("]");
  return finish(std::move(node), {});
}

ExprPtr ExpressionParser::parse_dict() {
  auto node = std::make_unique<DictExpr>(peek().line);
  expect_op("{");
  while (!is_op("}")) {
    ExprPtr key = parse_expression();
    expect_op(":");
    ExprPtr value = parse_expression();
    node->depth = std::max({node->depth, key->depth + 1, value->depth + 1});
    node->items.emplace_back(std::move(key), std::move(value));
    if (!take_op(",")) break;
  }
  expect_op("}");
  return finish(std::move(node), {});
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr node) {
  for (;;) {
    if (is_op(".")) {
      node = parse_attribute(std::move(node));
    } else if (is_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_attribute(ExprPtr object) {
  const int line = next().line;
  const Expr* e = object.get();
  if (peek().kind == Kind::kInteger) {
    return finish(std::make_unique<ItemExpr>(line, std::move(object), parse_number<int64_t>()),
                  {e});
  }
  return finish(std::make_unique<AttributeExpr>(line, std::move(object), identifier()), {e});
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = next().line;
  ExprPtr start;
  if (!is_op(":")) start = parse_expression();
  if (take_op("]")) {
    const Expr *o = object.get(), *k = start.get();
    return finish(std::make_unique<ItemExpr>(line, std::move(object), std::move(start)), {o, k});
  }
  auto node = std::make_unique<SliceExpr>(line, std::move(object));
  node->start = std::move(start);
  expect_op(":");
  if (!is_op(":") && !is_op("]")) node->stop = parse_expression();
  if (take_op(":") && !is_op("]")) node->step = parse_expression();
  expect_op("]");
  const Expr *o = node->object.get(), *a = node->start.get(), *b = node->stop.get(),
             *c = node->step.get();
  return finish(std::move(node), {o, a, b, c});
}

ArgumentList ExpressionParser::parse_arguments() {
  ArgumentList out;
  expect_op("(");
  while (!is_op(")")) {
    if (is_op("*") || is_op("**")) fail("expected plain arguments, got '" + peek().text + "'");
    if (peek().kind == Kind::kName && is_op("=", 1)) {
      std::string name = identifier();
      next();
      out.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!out.named.empty()) fail("expected named arguments last");
      out.positional.push_back(parse_expression());
    }
    if (!take_op(",")) break;
  }
  expect_op(")");
  return out;
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  const Expr* e = callee.get();
  auto node = std::make_unique<CallExpr>(peek().line, std::move(callee));
  node->arguments = parse_arguments();
  const ArgumentList* arguments = &node->arguments;
  return finish(std::move(node), {e}, arguments);
}

ExprPtr ExpressionParser::parse_filters(ExprPtr node) {
  for (;;) {
    if (take_op("|")) {
      node = parse_filter(std::move(node));
    } else if (is_name("is")) {
      node = parse_test(std::move(node));
    } else if (is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_filter(ExprPtr operand) {
  const int line = peek().line;
  std::string name = identifier();
  if (!is_filter(name)) fail("expected a filter that keel knows, got '" + name + "'");
  const Expr* e = operand.get();
  auto node = std::make_unique<FilterExpr>(line, std::move(operand), std::move(name));
  if (is_op("(")) node->arguments = parse_arguments();
  const ArgumentList* arguments = &node->arguments;
  return finish(std::move(node), {e}, arguments);
}

ExprPtr ExpressionParser::parse_test(ExprPtr operand) {
  const int line = next().line;
  const bool negated = take_name("not");
  std::string name = identifier();
  if (!is_test(name)) fail("expected a test that keel knows, got '" + name + "'");
  const Expr* e = operand.get();
  auto node = std::make_unique<TestExpr>(line, std::move(operand), std::move(name), negated);
  if (is_op("(")) {
    node->arguments = parse_arguments();
  } else if (begins_test_argument()) {
    node->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  const ArgumentList* arguments = &node->arguments;
  return finish(std::move(node), {e}, arguments);
}

bool ExpressionParser::begins_test_argument() const {
  const Token& t = peek();
  if (t.kind == Kind::kString || t.kind == Kind::kInteger || t.kind == Kind::kFloat) return true;
  if (is_op("[") || is_op("{")) return true;
  if (t.kind != Kind::kName) return false;
  for (const char* word : {"else", "or", "and", "if", "in", "not", "is", "recursive"}) {
    if (t.text == word) return false;
  }
  return true;
}

}  // namespace keel::jinja

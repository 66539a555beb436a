#include "keel/tokenizer/jinja/parser.h"

#include <algorithm>
#include <charconv>

#include "keel/tokenizer/jinja/builtins.h"
#include "keel/tokenizer/jinja/lexer.h"

namespace keel::jinja {
namespace {

constexpr int kMaxNesting = 150;    // brackets and blocks inside each other
constexpr int kMaxTreeDepth = 250;  // also a ~ b ~ c ... makes a deep tree

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where)
      : tokens_(std::move(tokens)), where_(where) {}

  Body run() {
    Body body = parse_body({});
    if (peek().kind != TokenKind::kEnd) fail("unexpected '" + describe(peek()) + "'");
    return body;
  }

 private:
  using Kind = TokenKind;

  struct Nesting {
    explicit Nesting(Parser& p) : parser(p) {
      if (++parser.nesting_ > kMaxNesting) parser.fail("expected less nesting");
    }
    ~Nesting() { --parser.nesting_; }
    Parser& parser;
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

  // --- statements ---

  // Up to a block whose name is in `ends` (its name is the next token then) or the template's end.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const Nesting guard(*this);
    Body body;
    for (;;) {
      const Token& t = peek();
      if (t.kind == Kind::kText) {
        body.push_back(std::make_unique<TextStmt>(t.line, t.text));
        next();
      } else if (t.kind == Kind::kVariableBegin) {
        const int line = next().line;
        body.push_back(std::make_unique<OutputStmt>(line, parse_tuple(true)));
        expect(Kind::kVariableEnd, "}}");
      } else if (t.kind == Kind::kBlockBegin) {
        const bool end = std::any_of(ends.begin(), ends.end(),
                                     [&](std::string_view name) { return is_name(name, 1); });
        next();
        if (end) return body;
        body.push_back(parse_statement());
      } else {
        if (ends.size() > 0)
          fail(fmt::format("expected '{}', got '{}'", *ends.begin(), describe(t)));
        return body;
      }
    }
  }

  void end_block(std::string_view name) {
    expect_name(name);
    expect(Kind::kBlockEnd, "%}");
  }

  std::unique_ptr<const Stmt> parse_statement() {
    const int line = peek().line;
    const std::string name = identifier();
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "with") return parse_with(line);
    if (name == "generation") {
      auto block = std::make_unique<BlockStmt>(line);
      expect(Kind::kBlockEnd, "%}");
      block->body = parse_body({"endgeneration"});
      end_block("endgeneration");
      return block;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("expected '" + name + "' inside of a loop");
      expect(Kind::kBlockEnd, "%}");
      return std::make_unique<FlowStmt>(line, name == "break" ? Flow::kBreak : Flow::kContinue);
    }
    fail("expected a statement that keel knows, got '" + name + "'");
  }

  std::unique_ptr<const Stmt> parse_if(int line) {
    auto node = std::make_unique<IfStmt>(line);
    do {
      ExprPtr test = parse_tuple(true);
      expect(Kind::kBlockEnd, "%}");
      node->branches.emplace_back(std::move(test), parse_body({"elif", "else", "endif"}));
    } while (take_name("elif"));
    if (take_name("else")) {
      expect(Kind::kBlockEnd, "%}");
      node->otherwise = parse_body({"endif"});
    }
    end_block("endif");
    return node;
  }

  std::vector<std::string> parse_targets() {
    const bool brackets = take_op("(");
    std::vector<std::string> targets;
    do {
      targets.push_back(identifier());
    } while (take_op(","));
    if (brackets) expect_op(")");
    return targets;
  }

  std::unique_ptr<const Stmt> parse_for(int line) {
    auto node = std::make_unique<ForStmt>(line);
    node->targets = parse_targets();
    expect_name("in");
    node->source = parse_tuple(false);
    if (take_name("if")) node->condition = parse_expression();
    if (is_name("recursive")) fail("expected no recursive loop");
    expect(Kind::kBlockEnd, "%}");
    ++loops_;
    node->body = parse_body({"else", "endfor"});
    --loops_;
    if (take_name("else")) {
      expect(Kind::kBlockEnd, "%}");
      node->otherwise = parse_body({"endfor"});
    }
    end_block("endfor");
    return node;
  }

  std::unique_ptr<const Stmt> parse_set(int line) {
    auto node = std::make_unique<SetStmt>(line);
    node->targets = parse_targets();
    if (node->targets.size() == 1 && take_op(".")) node->attribute = identifier();
    if (take_op("=")) {
      node->value = parse_tuple(true);
      expect(Kind::kBlockEnd, "%}");
      return node;
    }
    if (node->targets.size() != 1 || !node->attribute.empty()) {
      fail("expected '=', got '" + describe(peek()) + "'");
    }
    expect(Kind::kBlockEnd, "%}");
    node->body = parse_body({"endset"});
    end_block("endset");
    return node;
  }

  std::unique_ptr<const Stmt> parse_macro(int line) {
    auto node = std::make_unique<MacroNode>(line);
    node->name = identifier();
    expect_op("(");
    while (!is_op(")")) {
      std::string name = identifier();
      ExprPtr fallback = take_op("=") ? parse_expression() : nullptr;
      node->parameters.emplace_back(std::move(name), std::move(fallback));
      if (!take_op(",")) break;
    }
    expect_op(")");
    expect(Kind::kBlockEnd, "%}");
    const int loops = std::exchange(loops_, 0);
    node->body = parse_body({"endmacro"});
    loops_ = loops;
    end_block("endmacro");
    return node;
  }

  std::unique_ptr<const Stmt> parse_with(int line) {
    auto node = std::make_unique<BlockStmt>(line);
    while (peek().kind == Kind::kName) {
      std::string name = identifier();
      expect_op("=");
      node->variables.emplace_back(std::move(name), parse_expression());
      if (!take_op(",")) break;
    }
    expect(Kind::kBlockEnd, "%}");
    node->body = parse_body({"endwith"});
    end_block("endwith");
    return node;
  }

  // --- expressions, loosest binding first ---

  // One expression, or a list of several with commas.
  ExprPtr parse_tuple(bool conditional) {
    const int line = peek().line;
    ExprPtr first = conditional ? parse_expression() : parse_or();
    if (!is_op(",")) return first;
    auto list = std::make_unique<ListExpr>(line);
    list->depth = first->depth + 1;
    list->items.push_back(std::move(first));
    while (take_op(",")) {
      if (!begins_expression()) break;
      list->items.push_back(conditional ? parse_expression() : parse_or());
      list->depth = std::max(list->depth, list->items.back()->depth + 1);
    }
    return finish(std::move(list), {});
  }

  bool begins_expression() const {
    const Token& t = peek();
    return t.kind != Kind::kVariableEnd && t.kind != Kind::kBlockEnd && t.kind != Kind::kEnd &&
           !is_op(")") && !is_op("]") && !is_op("}") && !is_op("=");
  }

  ExprPtr parse_expression() {
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

  ExprPtr binary(int line, BinaryOp op, ExprPtr left, ExprPtr right) {
    const Expr *a = left.get(), *b = right.get();
    return finish(std::make_unique<BinaryExpr>(line, op, std::move(left), std::move(right)),
                  {a, b});
  }

  ExprPtr unary(int line, UnaryOp op, ExprPtr operand) {
    const Expr* e = operand.get();
    return finish(std::make_unique<UnaryExpr>(line, op, std::move(operand)), {e});
  }

  ExprPtr parse_or() {
    ExprPtr left = parse_and();
    while (is_name("or")) {
      const int line = next().line;
      left = binary(line, BinaryOp::kOr, std::move(left), parse_and());
    }
    return left;
  }

  ExprPtr parse_and() {
    ExprPtr left = parse_not();
    while (is_name("and")) {
      const int line = next().line;
      left = binary(line, BinaryOp::kAnd, std::move(left), parse_not());
    }
    return left;
  }

  ExprPtr parse_not() {
    if (!is_name("not")) return parse_compare();
    const Nesting guard(*this);
    const int line = next().line;
    return unary(line, UnaryOp::kNot, parse_not());
  }

  std::optional<CompareOp> take_compare() {
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

  ExprPtr parse_compare() {
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

  ExprPtr parse_sum() {
    ExprPtr left = parse_concat();
    while (is_op("+") || is_op("-")) {
      const Token& t = next();
      left = binary(t.line, t.text == "+" ? BinaryOp::kAdd : BinaryOp::kSub, std::move(left),
                    parse_concat());
    }
    return left;
  }

  ExprPtr parse_concat() {
    ExprPtr left = parse_product();
    while (is_op("~")) {
      const int line = next().line;
      left = binary(line, BinaryOp::kConcat, std::move(left), parse_product());
    }
    return left;
  }

  ExprPtr parse_product() {
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

  ExprPtr parse_power() {
    ExprPtr left = parse_unary(true);
    while (is_op("**")) {
      const int line = next().line;
      left = binary(line, BinaryOp::kPow, std::move(left), parse_unary(true));
    }
    return left;
  }

  ExprPtr parse_unary(bool with_filters) {
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

  ExprPtr literal(int line, Value value) {
    return std::make_unique<LiteralExpr>(line, std::move(value));
  }

  ExprPtr parse_primary() {
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
        inner = std::make_unique<ListExpr>(t.line);
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

  ExprPtr parse_list() {
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

  ExprPtr parse_dict() {
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

  ExprPtr parse_postfix(ExprPtr node) {
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

  ExprPtr parse_attribute(ExprPtr object) {
    const int line = next().line;
    const Expr* e = object.get();
    if (peek().kind == Kind::kInteger) {
      return finish(std::make_unique<ItemExpr>(line, std::move(object), parse_number<int64_t>()),
                    {e});
    }
    return finish(std::make_unique<AttributeExpr>(line, std::move(object), identifier()), {e});
  }

  ExprPtr parse_subscript(ExprPtr object) {
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

  ArgumentList parse_arguments() {
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

  ExprPtr parse_call(ExprPtr callee) {
    const Expr* e = callee.get();
    auto node = std::make_unique<CallExpr>(peek().line, std::move(callee));
    node->arguments = parse_arguments();
    const ArgumentList* arguments = &node->arguments;
    return finish(std::move(node), {e}, arguments);
  }

  ExprPtr parse_filters(ExprPtr node) {
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

  ExprPtr parse_filter(ExprPtr operand) {
    const int line = peek().line;
    std::string name = identifier();
    if (!is_filter(name)) fail("expected a filter that keel knows, got '" + name + "'");
    const Expr* e = operand.get();
    auto node = std::make_unique<FilterExpr>(line, std::move(operand), std::move(name));
    if (is_op("(")) node->arguments = parse_arguments();
    const ArgumentList* arguments = &node->arguments;
    return finish(std::move(node), {e}, arguments);
  }

  ExprPtr parse_test(ExprPtr operand) {
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

  // "x is divisibleby 3": a primary may follow without brackets.
  bool begins_test_argument() const {
    const Token& t = peek();
    if (t.kind == Kind::kString || t.kind == Kind::kInteger || t.kind == Kind::kFloat) return true;
    if (is_op("[") || is_op("{")) return true;
    if (t.kind != Kind::kName) return false;
    for (const char* word : {"else", "or", "and", "if", "in", "not", "is", "recursive"}) {
      if (t.text == word) return false;
    }
    return true;
  }

  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse(const std::string& source, const std::string& where) {
  return Parser(tokenize(source, where), where).run();
}

}  // namespace keel::jinja

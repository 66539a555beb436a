#include "keel/tokenizer/jinja/parser.h"

#include "keel/tokenizer/jinja/expression_parser.h"

namespace keel::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() {
    Body body = parse_body({});
    if (peek().kind != TokenKind::kEnd) fail("unexpected '" + describe(peek()) + "'");
    return body;
  }

 private:
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

  int loops_ = 0;  // around what is being parsed
};

}  // namespace

Body parse(const std::string& source, const std::string& where) {
  return Parser(tokenize(source, where), where).run();
}

}  // namespace keel::jinja

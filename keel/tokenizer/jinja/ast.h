// The parsed template. Nodes are immutable and know how to run themselves (interpreter.cc).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/tokenizer/jinja/value.h"

namespace keel::jinja {

class Context;

struct Expr {
  explicit Expr(int line_number) : line(line_number) {}
  virtual ~Expr() = default;
  virtual Value eval(Context& ctx) const = 0;
  int line;
  int depth = 1;  // of the tree below; the parser bounds it, so that recursion is safe
};
using ExprPtr = std::unique_ptr<const Expr>;

enum class Flow { kNext, kBreak, kContinue };

struct Stmt {
  explicit Stmt(int line_number) : line(line_number) {}
  virtual ~Stmt() = default;
  virtual Flow exec(Context& ctx) const = 0;
  int line;
};
using Body = std::vector<std::unique_ptr<const Stmt>>;

// --- expressions ---

struct LiteralExpr : Expr {
  LiteralExpr(int l, Value v) : Expr(l), value(std::move(v)) {}
  Value eval(Context&) const override { return value; }
  Value value;
};

struct NameExpr : Expr {
  NameExpr(int l, std::string n) : Expr(l), name(std::move(n)) {}
  Value eval(Context& ctx) const override;
  std::string name;
};

struct ListExpr : Expr {
  explicit ListExpr(int l, bool is_tuple = false) : Expr(l), tuple(is_tuple) {}
  Value eval(Context& ctx) const override;
  std::vector<ExprPtr> items;
  bool tuple;
};

struct DictExpr : Expr {
  using Expr::Expr;
  Value eval(Context& ctx) const override;
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};

struct AttributeExpr : Expr {  // object.name
  AttributeExpr(int l, ExprPtr o, std::string n)
      : Expr(l), object(std::move(o)), name(std::move(n)) {}
  Value eval(Context& ctx) const override;
  ExprPtr object;
  std::string name;
};

struct ItemExpr : Expr {  // object[key]
  ItemExpr(int l, ExprPtr o, ExprPtr k) : Expr(l), object(std::move(o)), key(std::move(k)) {}
  Value eval(Context& ctx) const override;
  ExprPtr object, key;
};

struct SliceExpr : Expr {  // object[start:stop:step], parts may be null
  SliceExpr(int l, ExprPtr o) : Expr(l), object(std::move(o)) {}
  Value eval(Context& ctx) const override;
  ExprPtr object, start, stop, step;
};

enum class UnaryOp { kNot, kMinus, kPlus };

struct UnaryExpr : Expr {
  UnaryExpr(int l, UnaryOp o, ExprPtr e) : Expr(l), op(o), operand(std::move(e)) {}
  Value eval(Context& ctx) const override;
  UnaryOp op;
  ExprPtr operand;
};

enum class BinaryOp { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kConcat, kAnd, kOr };

struct BinaryExpr : Expr {
  BinaryExpr(int l, BinaryOp o, ExprPtr a, ExprPtr b)
      : Expr(l), op(o), left(std::move(a)), right(std::move(b)) {}
  Value eval(Context& ctx) const override;
  BinaryOp op;
  ExprPtr left, right;
};

enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CompareExpr : Expr {  // first op a op b ...: all must hold
  CompareExpr(int l, ExprPtr f) : Expr(l), first(std::move(f)) {}
  Value eval(Context& ctx) const override;
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};

struct ConditionalExpr : Expr {  // yes if test else no; `no` may be null
  using Expr::Expr;
  Value eval(Context& ctx) const override;
  ExprPtr test, yes, no;
};

// Arguments as written.
struct ArgumentList {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct CallExpr : Expr {
  CallExpr(int l, ExprPtr c) : Expr(l), callee(std::move(c)) {}
  Value eval(Context& ctx) const override;
  ExprPtr callee;
  ArgumentList arguments;
};

struct FilterExpr : Expr {
  FilterExpr(int l, ExprPtr o, std::string n)
      : Expr(l), operand(std::move(o)), name(std::move(n)) {}
  Value eval(Context& ctx) const override;
  ExprPtr operand;
  std::string name;
  ArgumentList arguments;
};

struct TestExpr : Expr {  // operand is [not] name
  TestExpr(int l, ExprPtr o, std::string n, bool neg)
      : Expr(l), operand(std::move(o)), name(std::move(n)), negated(neg) {}
  Value eval(Context& ctx) const override;
  ExprPtr operand;
  std::string name;
  bool negated;
  ArgumentList arguments;
};

// --- statements ---

struct TextStmt : Stmt {
  TextStmt(int l, std::string t) : Stmt(l), text(std::move(t)) {}
  Flow exec(Context& ctx) const override;
  std::string text;
};

struct OutputStmt : Stmt {
  OutputStmt(int l, ExprPtr e) : Stmt(l), value(std::move(e)) {}
  Flow exec(Context& ctx) const override;
  ExprPtr value;
};

struct IfStmt : Stmt {
  using Stmt::Stmt;
  Flow exec(Context& ctx) const override;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};

struct ForStmt : Stmt {
  using Stmt::Stmt;
  Flow exec(Context& ctx) const override;
  std::vector<std::string> targets;
  ExprPtr source;
  ExprPtr condition;  // may be null
  Body body;
  Body otherwise;
};

// {% set a = e %}, {% set a, b = e %}, {% set ns.a = e %}, {% set a %}body{% endset %}
struct SetStmt : Stmt {
  using Stmt::Stmt;
  Flow exec(Context& ctx) const override;
  std::vector<std::string> targets;
  std::string attribute;  // of targets[0], if not empty
  ExprPtr value;          // null for a block
  Body body;
};

struct MacroNode : Stmt {
  using Stmt::Stmt;
  Flow exec(Context& ctx) const override;  // defines it
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // defaults may be null
  Body body;
};

// {% with a = 1 %} body, {% generation %} body
struct BlockStmt : Stmt {
  using Stmt::Stmt;
  Flow exec(Context& ctx) const override;
  std::vector<std::pair<std::string, ExprPtr>> variables;
  Body body;
};

struct FlowStmt : Stmt {
  FlowStmt(int l, Flow f) : Stmt(l), flow(f) {}
  Flow exec(Context&) const override { return flow; }
  Flow flow;
};

}  // namespace keel::jinja

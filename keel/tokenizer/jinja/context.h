// The state of one rendering.
#pragma once

#include <deque>
#include <string>

#include "keel/tokenizer/jinja/ast.h"
#include "keel/tokenizer/jinja/builtins.h"

namespace keel::jinja {

struct Scope {
  std::vector<std::pair<std::string, Value>> variables;
  const Scope* parent = nullptr;

  const Value* find(std::string_view name) const {
    for (const Scope* s = this; s; s = s->parent) {
      for (const auto& [key, value] : s->variables) {
        if (key == name) return &value;
      }
    }
    return nullptr;
  }
  void set(const std::string& name, Value value) {
    for (auto& [key, old] : variables) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }
};

class Context {
 public:
  explicit Context(Budget limits) : budget(limits), scope(&root), out(&output) {}

  Budget budget;
  Scope root;
  Scope* scope;
  std::string output;
  std::string* out;  // where text goes: `output`, or the buffer of a macro or block
  int line = 1;      // of what runs, for messages

  void write(std::string_view text) {
    budget.bytes(text.size());
    out->append(text);
  }

  // Lives as long as the rendering, so that namespaces may refer to each other.
  Namespace* make_namespace() { return &namespaces_.emplace_back(); }

  Flow run(const Body& body);
  Arguments evaluate(const ArgumentList& arguments);
  Value call_macro(const MacroNode& macro, const Arguments& args);
  // `object.name` (attribute before item) and `object[key]`.
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);

  // Bounds recursion: make one on entering an expression, a body or a macro.
  class Depth {
   public:
    explicit Depth(Context& ctx) : ctx_(ctx) {
      KEEL_REQUIRE(++ctx_.depth_ <= kMaxDepth,
                   "[chat template] expected less recursion, got a macro that calls itself");
      ctx_.budget.step();
    }
    ~Depth() { --ctx_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Context& ctx_;
  };

 private:
  static constexpr int kMaxDepth = 900;
  int depth_ = 0;
  std::deque<Namespace> namespaces_;
};

// A scope (and, if given, a text buffer) for the life of this object.
class ScopeGuard {
 public:
  ScopeGuard(Context& ctx, const Scope* parent, std::string* buffer = nullptr)
      : ctx_(ctx), old_scope_(ctx.scope), old_out_(ctx.out) {
    scope_.parent = parent;
    ctx.scope = &scope_;
    if (buffer) ctx.out = buffer;
  }
  ~ScopeGuard() {
    ctx_.scope = old_scope_;
    ctx_.out = old_out_;
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  Scope& scope() { return scope_; }

 private:
  Context& ctx_;
  Scope scope_;
  Scope* old_scope_;
  std::string* old_out_;
};

}  // namespace keel::jinja

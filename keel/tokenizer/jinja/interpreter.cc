// Running the template: what each statement does.
#include "keel/tokenizer/jinja/context.h"

namespace keel::jinja {
namespace {

// Binds loop or assignment targets: one takes all, several unpack.
void bind(Context& ctx, const std::vector<std::string>& targets, Value value) {
  if (targets.size() == 1) return ctx.scope->set(targets[0], std::move(value));
  const Values parts = iterate(value, ctx.budget);
  KEEL_REQUIRE(parts.size() == targets.size(),
               "[chat template] expected {} values to unpack, got {}", targets.size(),
               parts.size());
  for (size_t i = 0; i < parts.size(); ++i) ctx.scope->set(targets[i], parts[i]);
}

Function const* builtin(const std::string& name) {
  static const std::pair<std::string_view, Function> kFunctions[] = {
      {"range", Function::kRange},
      {"namespace", Function::kNamespace},
      {"dict", Function::kDict},
      {"raise_exception", Function::kRaise},
      {"strftime_now", Function::kStrftimeNow}};
  for (const auto& [key, function] : kFunctions) {
    if (key == name) return &function;
  }
  return nullptr;
}

}  // namespace

Flow Context::run(const Body& body) {
  const Depth guard(*this);
  for (const auto& stmt : body) {
    line = stmt->line;
    budget.step();
    if (const Flow flow = stmt->exec(*this); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Arguments Context::evaluate(const ArgumentList& arguments) {
  Arguments out;
  for (const auto& e : arguments.positional) out.positional.push_back(e->eval(*this));
  for (const auto& [name, e] : arguments.named) out.named.emplace_back(name, e->eval(*this));
  return out;
}

// A macro sees its parameters and the template's outermost variables.
Value Context::call_macro(const MacroNode& macro, const Arguments& args) {
  const Depth guard(*this);
  KEEL_REQUIRE(args.positional.size() <= macro.parameters.size(),
               "[chat template] expected at most {} arguments for macro '{}', got {}",
               macro.parameters.size(), macro.name, args.positional.size());
  for (const auto& [name, value] : args.named) {
    bool known = false;
    for (const auto& [parameter, fallback] : macro.parameters) known |= parameter == name;
    KEEL_REQUIRE(known, "[chat template] macro '{}' has no parameter '{}'", macro.name, name);
  }
  std::string text;
  ScopeGuard inner(*this, &root, &text);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    if (const Value* given = args.get(i, name)) {
      inner.scope().set(name, *given);
    } else {
      inner.scope().set(name, fallback ? fallback->eval(*this)
                                       : Undefined{"parameter '" + name + "' was not provided"});
    }
  }
  run(macro.body);
  return text;
}

Value NameExpr::eval(Context& ctx) const {
  if (const Value* v = ctx.scope->find(name)) return *v;
  if (const Function* f = builtin(name)) return *f;
  return Undefined{"'" + name + "' is undefined"};
}

Value CallExpr::eval(Context& ctx) const {
  const Context::Depth guard(ctx);
  Value target;
  if (const auto* method = dynamic_cast<const AttributeExpr*>(callee.get())) {
    const Value object = method->object->eval(ctx);
    const Arguments args = ctx.evaluate(arguments);
    Value result;
    if (call_method(object, method->name, args, ctx, result)) return result;
    target = ctx.attribute(object, method->name);
  } else {
    target = callee->eval(ctx);
  }
  const Arguments args = ctx.evaluate(arguments);
  ctx.line = line;
  if (const MacroNode* macro = target.as_macro()) return ctx.call_macro(*macro, args);
  if (const Function* function = target.as_function()) return call_function(*function, args, ctx);
  KEEL_REQUIRE(!target.is_undefined(), "[chat template] {}", target.undefined_hint());
  throw_invalid("[chat template] expected something to call, got {}", target.type_name());
}

Flow TextStmt::exec(Context& ctx) const {
  ctx.write(text);
  return Flow::kNext;
}

Flow OutputStmt::exec(Context& ctx) const {
  const Value v = value->eval(ctx);
  if (v.is_string()) {
    ctx.write(v.str());
  } else {
    ctx.write(to_text(v, ctx.budget));
  }
  return Flow::kNext;
}

Flow IfStmt::exec(Context& ctx) const {
  for (const auto& [test, body] : branches) {
    if (test->eval(ctx).truthy()) return ctx.run(body);
  }
  return ctx.run(otherwise);
}

Flow ForStmt::exec(Context& ctx) const {
  Values items = iterate(source->eval(ctx), ctx.budget);
  if (condition) {
    ScopeGuard inner(ctx, ctx.scope);
    std::erase_if(items, [&](const Value& item) {
      bind(ctx, targets, item);
      return !condition->eval(ctx).truthy();
    });
  }
  if (items.empty()) return ctx.run(otherwise);
  const Value list = Value::list(std::move(items));
  ScopeGuard inner(ctx, ctx.scope);
  Flow flow = Flow::kNext;
  for (size_t i = 0; i < list.items().size() && flow != Flow::kBreak; ++i) {
    inner.scope().variables.clear();
    inner.scope().set("loop", std::make_shared<const Loop>(Loop{list, i}));
    bind(ctx, targets, list.items()[i]);
    flow = ctx.run(body);
  }
  return Flow::kNext;
}

Flow SetStmt::exec(Context& ctx) const {
  Value v;
  if (value) {
    v = value->eval(ctx);
  } else {
    std::string text;
    Flow flow;
    {
      ScopeGuard inner(ctx, ctx.scope, &text);
      flow = ctx.run(body);
    }
    if (flow != Flow::kNext) return flow;
    v = std::move(text);
  }
  if (attribute.empty()) {
    bind(ctx, targets, std::move(v));
    return Flow::kNext;
  }
  const Value* target = ctx.scope->find(targets[0]);
  Namespace* space = target ? target->as_namespace() : nullptr;
  KEEL_REQUIRE(space, "[chat template] expected a namespace to set '{}.{}' in", targets[0],
               attribute);
  for (auto& [name, old] : space->attributes) {
    if (name == attribute) {
      old = std::move(v);
      return Flow::kNext;
    }
  }
  space->attributes.emplace_back(attribute, std::move(v));
  return Flow::kNext;
}

Flow MacroNode::exec(Context& ctx) const {
  ctx.scope->set(name, this);
  return Flow::kNext;
}

Flow BlockStmt::exec(Context& ctx) const {
  ScopeGuard inner(ctx, ctx.scope);
  for (const auto& [name, e] : variables) {
    ctx.scope->set(name, e->eval(ctx));
  }
  return ctx.run(body);
}

}  // namespace keel::jinja

#include "keel/tokenizer/chat_template.h"

#include "keel/tokenizer/jinja/context.h"
#include "keel/tokenizer/jinja/parser.h"

namespace keel {

namespace {

void set_all(jinja::Scope& scope, const OrderedJson& variables) {
  for (const auto& [name, value] : variables.items()) {
    scope.set(name, jinja::Value::from_json(value));
  }
}

}  // namespace

struct ChatTemplate::Impl {
  std::string where;
  jinja::Body body;
  TemplateLimits limits;

  template <class Set>
  std::string run(Set&& set) const;
};

ChatTemplate::ChatTemplate(const std::string& source, std::string where, TemplateLimits limits) {
  auto impl = std::make_unique<Impl>();
  impl->where = std::move(where);
  impl->limits = limits;
  impl->body = jinja::parse(source, impl->where);
  impl_ = std::move(impl);
}

ChatTemplate::~ChatTemplate() = default;

// `set` puts the variables into the outermost scope.
template <class Set>
std::string ChatTemplate::Impl::run(Set&& set) const {
  jinja::Context ctx({limits.max_steps, limits.max_bytes});
  try {
    set(ctx.root);
    ctx.run(body);
  } catch (const Error& e) {
    std::string_view message = e.what();
    constexpr std::string_view kPrefix = "[chat template] ";
    if (message.starts_with(kPrefix)) message.remove_prefix(kPrefix.size());
    throw Error(e.kind(), fmt::format("[{}:{}] {}", where, ctx.line, message));
  }
  return std::move(ctx.output);
}

std::string ChatTemplate::render(const OrderedJson& variables) const {
  KEEL_REQUIRE(variables.is_object(), "[{}] expected an object of variables, got {}", impl_->where,
               variables.type_name());
  return impl_->run([&](jinja::Scope& scope) { set_all(scope, variables); });
}

std::string ChatTemplate::render(const OrderedJson& messages, const OrderedJson& tools,
                                 bool add_generation_prompt, const OrderedJson& kwargs,
                                 const std::map<std::string, std::string>& special_tokens) const {
  const auto require = [&](bool ok, const char* what, const OrderedJson& got) {
    KEEL_REQUIRE(ok, "[{}] expected {}, got {}", impl_->where, what, got.type_name());
  };
  require(messages.is_array(), "messages to be a list", messages);
  require(tools.is_null() || tools.is_array(), "tools to be a list", tools);
  require(kwargs.is_null() || kwargs.is_object(), "kwargs to be an object", kwargs);
  return impl_->run([&](jinja::Scope& scope) {
    scope.set("messages", jinja::Value::from_json(messages));
    scope.set("tools", jinja::Value::from_json(tools));
    scope.set("documents", jinja::None{});
    scope.set("add_generation_prompt", add_generation_prompt);
    for (const auto& [name, token] : special_tokens) scope.set(name, token);
    if (kwargs.is_object()) set_all(scope, kwargs);
  });
}

}  // namespace keel

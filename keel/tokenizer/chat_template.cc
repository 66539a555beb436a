#include "keel/tokenizer/chat_template.h"

#include "keel/tokenizer/jinja/context.h"
#include "keel/tokenizer/jinja/parser.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {

struct ChatTemplate::Impl {
  std::string where;
  jinja::Body body;
};

ChatTemplate::ChatTemplate(const std::string& source, std::string where) {
  auto impl = std::make_unique<Impl>();
  impl->where = std::move(where);
  impl->body = jinja::parse(source, impl->where);
  impl_ = std::move(impl);
}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const OrderedJson& variables) const {
  KEEL_REQUIRE(variables.is_object(), "[{}] expected an object of variables, got {}", impl_->where,
               variables.type_name());
  jinja::Context ctx;
  try {
    for (const auto& [name, value] : variables.items()) {
      ctx.root.set(name, jinja::Value::from_json(value));
    }
    ctx.run(impl_->body);
  } catch (const Error& e) {
    std::string_view message = e.what();
    constexpr std::string_view kPrefix = "[chat template] ";
    if (message.starts_with(kPrefix)) message.remove_prefix(kPrefix.size());
    throw Error(e.kind(), fmt::format("[{}:{}] {}", impl_->where, ctx.line, message));
  }
  return std::move(ctx.output);
}

std::string ChatTemplate::render(const OrderedJson& messages, const OrderedJson& tools,
                                 const OrderedJson& kwargs,
                                 const std::map<std::string, std::string>& special_tokens) const {
  KEEL_REQUIRE(messages.is_array(), "[{}] expected messages to be a list, got {}", impl_->where,
               messages.type_name());
  KEEL_REQUIRE(tools.is_null() || tools.is_array(), "[{}] expected tools to be a list, got {}",
               impl_->where, tools.type_name());
  KEEL_REQUIRE(kwargs.is_null() || kwargs.is_object(),
               "[{}] expected kwargs to be an object, got {}", impl_->where, kwargs.type_name());
  OrderedJson variables = {{"messages", messages},
                           {"tools", tools},
                           {"documents", nullptr},
                           {"add_generation_prompt", false}};
  for (const auto& [name, token] : special_tokens) variables[name] = token;
  if (kwargs.is_object()) variables.update(kwargs);
  return render(variables);
}

}  // namespace keel

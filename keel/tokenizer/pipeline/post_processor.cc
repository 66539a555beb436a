#include "keel/tokenizer/pipeline/post_processor.h"

namespace keel {
namespace {

std::vector<int32_t> template_ids(const Component& c, const std::string& token) {
  return c.child("special_tokens").child(token).get<std::vector<int32_t>>("ids");
}

void read_template(const Component& c, PostProcessor& out) {
  bool seen = false;
  const Component single = c.child("single");
  std::vector<int32_t> before, after;
  for (size_t i = 0; i < single.json.size(); ++i) {
    const Component item{single.json.at(i), fmt::format("{}[{}]", single.where, i)};
    if (item.json.is_object() && item.json.contains("Sequence")) {
      KEEL_REQUIRE(!seen, "[{}] expected one sequence in the template, got two", item.where);
      seen = true;
      continue;
    }
    const auto ids = template_ids(c, item.child("SpecialToken").get<std::string>("id"));
    auto& side = seen ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  KEEL_REQUIRE(seen, "[{}] expected a sequence in the template", single.where);
  // A later processor of a Sequence works around what an earlier one made.
  out.before.insert(out.before.begin(), before.begin(), before.end());
  out.after.insert(out.after.end(), after.begin(), after.end());
}

// ["<s>", 0]
int32_t pair_id(const Component& c) {
  KEEL_REQUIRE(c.json.is_array() && c.json.size() == 2 && c.json[1].is_number_integer(),
               "[{}] expected [token, id]", c.where);
  return c.json[1].get<int32_t>();
}

void read(const Component& c, PostProcessor& out) {
  if (c.json.is_null()) return;
  const std::string type = c.type();
  if (type == "ByteLevel") return;  // it only trims offsets
  if (type == "TemplateProcessing") return read_template(c, out);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    out.before.insert(out.before.begin(), pair_id(c.child("cls")));
    out.after.push_back(pair_id(c.child("sep")));
    return;
  }
  if (type == "Sequence") {
    const Component list = c.child("processors");
    for (size_t i = 0; i < list.json.size(); ++i) {
      read({list.json.at(i), fmt::format("{}[{}]", list.where, i)}, out);
    }
    return;
  }
  c.unsupported();
}

}  // namespace

PostProcessor make_post_processor(const Component& c) {
  PostProcessor out;
  read(c, out);
  return out;
}

}  // namespace keel

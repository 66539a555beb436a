#include "keel/base/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "keel/base/yaml_explain.h"

namespace keel {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20;
constexpr size_t kMaxDepth = 64;
constexpr int64_t kMaxNodes = 20'000;  // with aliases expanded

struct Stop {};  // leaves yaml-cpp's parser after a fatal finding

using NodePtr = std::shared_ptr<YamlNode>;

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, const std::string& name, ConfigFindings& findings)
      : text_(text), name_(name), findings_(findings) {}

  YamlPtr root() const { return root_; }
  bool has_document() const { return num_documents_ > 0; }
  int flow_line() const {
    for (auto it = stack_.rbegin(); it != stack_.rend(); ++it) {
      if (it->flow) return it->node->line;
    }
    return 0;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++num_documents_ < 2) return;
    fail("yaml_syntax", mark.line + 1, "one document", "a second one (after ---)",
         "one file for each");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto node = new_node(YamlNode::Kind::kScalar, mark);
    node->null = true;
    node->text = "null";
    add_scalar(node, anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(tag, mark);
    auto node = new_node(YamlNode::Kind::kScalar, mark);
    node->text = value;
    node->quoted = tag == "!";
    const size_t at = static_cast<size_t>(mark.pos);
    if (node->quoted && at < text_.size() && (text_[at] == '"' || text_[at] == '\'') &&
        !yaml_quote_is_closed(text_, at)) {
      fail("yaml_syntax", node->line, "a closing quote", "none before the end of the file",
           "closing the quote");
    }
    add_scalar(node, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    const bool open = std::any_of(stack_.begin(), stack_.end(),
                                  [&](const Open& o) { return o.anchor == anchor; });
    if (open || it == anchors_.end()) {
      fail("yaml_syntax", mark.line + 1, "an alias to something complete", "an alias to itself",
           "writing the value out");
    }
    add(it->second, mark.line + 1);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(YamlNode::Kind::kList, mark, tag, anchor, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(YamlNode::Kind::kMap, mark, tag, anchor, style);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    NodePtr node;
    YAML::anchor_t anchor;
    bool flow;
    bool has_key = false;
    std::string key = {};
    int key_line = 0;
    YamlPtr merged = nullptr;  // what "<<" named
  };

  static NodePtr new_node(YamlNode::Kind kind, const YAML::Mark& mark) {
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->line = mark.line + 1;
    return node;
  }

  std::string path() const {
    std::string out;
    for (const Open& o : stack_) {
      if (o.node->kind == YamlNode::Kind::kList) {
        out += fmt::format("[{}]", o.node->items.size());
      } else if (o.has_key) {
        out += (out.empty() ? "" : ".") + o.key;
      }
    }
    return out;
  }

  void report(const std::string& kind, int line, const std::string& field,
              const std::string& expected, const std::string& got, const std::string& hint) {
    ConfigFinding f;
    f.kind = kind;
    f.field = field;
    f.source = name_;
    f.line = line;
    f.expected = expected;
    f.got = got;
    f.hint = hint;
    findings_.add(f);
  }

  [[noreturn]] void fail(const std::string& kind, int line, const std::string& expected,
                         const std::string& got, const std::string& hint) {
    report(kind, line, kind == "too_deep" ? yaml_path_at_line(text_, line) : path(), expected, got,
           hint);
    throw Stop{};
  }

  void check_tag(const std::string& tag, const YAML::Mark& mark) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail("bad_tag", mark.line + 1, "a plain value", "the tag " + tag, "removing the tag");
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor, YAML::EmitterStyle::value style) {
    check_tag(tag, mark);
    if (!stack_.empty() && stack_.back().node->kind == YamlNode::Kind::kMap &&
        !stack_.back().has_key) {
      fail("yaml_syntax", mark.line + 1, "a word as key", "a list or section", "quoting the key");
    }
    if (stack_.size() >= kMaxDepth) {
      fail("too_deep", mark.line + 1, fmt::format("at most {} nested levels", kMaxDepth), "more",
           "a flatter file");
    }
    note_anchor(anchor, mark.line + 1);
    stack_.push_back({new_node(kind, mark), anchor, style == YAML::EmitterStyle::Flow});
  }

  void close() {
    Open done = std::move(stack_.back());
    stack_.pop_back();
    if (done.merged) merge(done);
    if (done.anchor) anchors_[done.anchor] = done.node;
    add(done.node, done.node->line);
  }

  // "<<: *defaults" (YAML 1.1 merge keys): own keys win over merged ones.
  void merge(Open& o) {
    std::vector<YamlPtr> maps = {o.merged};
    if (o.merged->kind == YamlNode::Kind::kList) maps = o.merged->items;
    for (const YamlPtr& map : maps) {
      if (map->kind != YamlNode::Kind::kMap) {
        fail("wrong_type", o.node->line, "sections after <<", "something else", "<<: *name");
      }
      for (const YamlEntry& e : map->entries) {
        if (!o.node->find(e.key)) {
          o.node->num_nodes += e.value->num_nodes;
          o.node->entries.push_back(e);
        }
      }
    }
  }

  void add_scalar(const NodePtr& node, YAML::anchor_t anchor) {
    if (!stack_.empty() && stack_.back().node->kind == YamlNode::Kind::kMap &&
        !stack_.back().has_key) {
      Open& o = stack_.back();
      if (node->null) {
        fail("yaml_syntax", node->line, "a key before the colon", "none", "\"key: value\"");
      }
      o.key = node->text;
      o.key_line = node->line;
      o.has_key = true;
      return;
    }
    note_anchor(anchor, node->line);
    if (anchor) anchors_[anchor] = node;
    add(node, node->line);
  }

  // Blames the first anchor, where an expansion of aliases starts.
  [[noreturn]] void fail_too_large(int line) {
    const bool aliased = first_anchor_line_ > 0;
    report("too_large", aliased ? first_anchor_line_ : line, aliased ? first_anchor_path_ : path(),
           fmt::format("at most {} values", kMaxNodes),
           fmt::format("more in line {}{}", line, aliased ? " after expanding aliases" : ""),
           "a smaller file");
    throw Stop{};
  }

  void note_anchor(YAML::anchor_t anchor, int line) {
    if (anchor == 0 || first_anchor_line_ > 0) return;
    first_anchor_line_ = line;
    first_anchor_path_ = path();
  }

  void add(YamlPtr node, int line) {
    if (stack_.empty()) {
      root_ = node;
      return;
    }
    Open& o = stack_.back();
    if (o.node->num_nodes + node->num_nodes > kMaxNodes) fail_too_large(line);
    o.node->num_nodes += node->num_nodes;
    if (o.node->kind == YamlNode::Kind::kList) {
      o.node->items.push_back(std::move(node));
      return;
    }
    if (!o.has_key) {
      fail("yaml_syntax", line, "a word as key", "an alias", "writing the key out");
    }
    if (o.key == "<<") {
      o.merged = node;
    } else if (const YamlEntry* first = o.node->find(o.key)) {
      report("duplicate_key", o.key_line, path(), "each key once",
             fmt::format("a second one (the first is in line {})", first->line),
             "removing one of them");
    } else {
      o.node->entries.push_back({o.key, std::move(node), name_, o.key_line});
    }
    o.has_key = false;
  }

  std::string_view text_;
  const std::string& name_;
  ConfigFindings& findings_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, YamlPtr> anchors_;
  YamlPtr root_;
  int num_documents_ = 0;
  int first_anchor_line_ = 0;
  std::string first_anchor_path_;
};

// Size and bytes; reports the first fault. True if the text may be parsed.
bool check_bytes(std::string_view text, const std::string& name, ConfigFindings& findings) {
  ConfigFinding f;
  f.source = name;
  if (text.size() > kMaxFileBytes) {
    f.kind = "too_large";
    f.expected = fmt::format("a configuration of at most {} bytes", kMaxFileBytes);
    f.got = fmt::format("{}", text.size());
    findings.add(f);
    return false;
  }
  size_t at = find_invalid_utf8(text);
  const auto is_control = [](unsigned char c) {
    return c < 0x20 && c != '\n' && c != '\t' && c != '\r';
  };
  if (at == std::string_view::npos) {
    const auto it = std::find_if(text.begin(), text.end(), is_control);
    if (it == text.end()) return true;
    at = static_cast<size_t>(it - text.begin());
  }
  f.kind = "encoding";
  f.line = static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
  f.line += 1;
  f.field = yaml_path_at_line(text, f.line);
  f.expected = "text in UTF-8";
  f.got = fmt::format("the byte 0x{:02X}", static_cast<unsigned char>(text[at]));
  f.hint = "saving the file as UTF-8";
  findings.add(f);
  return false;
}

// Without byte order mark and with \n line ends.
std::string normalized(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  return out;
}

}  // namespace

const YamlEntry* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& e : entries) {
    if (e.key == key) return &e;
  }
  return nullptr;
}

YamlPtr make_scalar(std::string text, bool quoted) {
  auto node = std::make_shared<YamlNode>();
  node->null = !quoted && is_null_word(text);
  node->text = std::move(text);
  node->quoted = quoted;
  return node;
}

YamlPtr make_map(std::vector<YamlEntry> entries) {
  auto node = std::make_shared<YamlNode>();
  node->kind = YamlNode::Kind::kMap;
  for (const YamlEntry& e : entries) node->num_nodes += e.value->num_nodes;
  node->entries = std::move(entries);
  return node;
}

YamlPtr parse_yaml(std::string_view raw, const std::string& name, ConfigFindings& findings) {
  if (!check_bytes(raw, name, findings)) return nullptr;
  const std::string text = normalized(raw);
  std::istringstream in(text);
  TreeBuilder builder(text, name, findings);
  try {
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
    return nullptr;
  } catch (const YAML::Exception& e) {
    const auto fault = explain_yaml_error(text, e.msg, e.mark.line + 1, builder.flow_line());
    ConfigFinding f;
    f.kind = "yaml_syntax";
    f.field = yaml_path_at_line(text, fault.line);
    f.source = name;
    f.line = fault.line;
    f.expected = "valid YAML";
    f.got = fault.got;
    f.hint = fault.hint;
    findings.add(f);
    return nullptr;
  }
  if (!builder.root() || (builder.root()->null)) {
    ConfigFinding f;
    f.kind = "empty_file";
    f.source = name;
    f.expected = "sections with keys";
    f.got = "an empty file";
    f.hint = "a recipe from recipes/ as a start";
    findings.add(f);
    return nullptr;
  }
  return builder.root();
}

bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

size_t find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t n = c < 0x80                ? 1
                     : c >= 0xC2 && c < 0xE0 ? 2
                     : (c & 0xF0) == 0xE0    ? 3
                     : c >= 0xF0 && c < 0xF5 ? 4
                                             : 0;
    if (n == 0 || i + n > text.size()) return i;
    uint32_t code = n == 1 ? c : c & (0xFF >> (n + 1));
    for (size_t k = 1; k < n; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return i;
      code = code << 6 | (next & 0x3F);
    }
    const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
    if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return i;
    i += n;
  }
  return std::string_view::npos;
}

}  // namespace keel

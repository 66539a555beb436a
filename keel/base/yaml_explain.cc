#include "keel/base/yaml_explain.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace keel {
namespace {

std::vector<std::string_view> first_lines(std::string_view text, int count) {
  std::vector<std::string_view> lines;
  while (!text.empty() && static_cast<int>(lines.size()) < count) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool is_key_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

// "  key: ..." → {indent, key, position after the colon}; key is "" if the line has no key.
struct KeyLine {
  size_t indent = 0;
  std::string_view key;
  size_t after = 0;
};

KeyLine key_of(std::string_view line) {
  KeyLine out;
  out.indent = std::min(line.find_first_not_of(" \t"), line.size());
  size_t end = out.indent;
  while (end < line.size() && is_key_char(line[end])) ++end;
  if (end > out.indent && end < line.size() && line[end] == ':') {
    out.key = line.substr(out.indent, end - out.indent);
    out.after = end + 1;
  }
  return out;
}

bool lacks_space_after_colon(std::string_view line) {
  const KeyLine k = key_of(line);
  return !k.key.empty() && k.after < line.size() && line[k.after] != ' ' && line[k.after] != '/' &&
         line[k.after] != '\t';
}

bool has_tab_in_indent(std::string_view line) {
  return line.substr(0, std::min(line.find_first_not_of(" \t"), line.size())).find('\t') !=
         std::string_view::npos;
}

}  // namespace

std::string yaml_path_at_line(std::string_view text, int line) {
  const auto lines = first_lines(text, line);
  std::string path;
  size_t indent = std::string::npos;
  for (auto it = lines.rbegin(); it != lines.rend() && indent > 0; ++it) {
    const KeyLine k = key_of(*it);
    if (k.indent == it->size() || (*it)[k.indent] == '#') continue;
    if (k.indent >= indent) continue;
    const bool is_key = !k.key.empty() && !lacks_space_after_colon(*it);
    if (is_key) path = std::string(k.key) + (path.empty() ? "" : ".") + path;
    indent = k.indent;
  }
  return path;
}

YamlFault explain_yaml_error(std::string_view text, const std::string& message, int line,
                             int flow_line) {
  const auto lines = first_lines(text, line);
  auto at = [&](int n) {
    return n >= 1 && n <= static_cast<int>(lines.size()) ? lines[n - 1] : std::string_view();
  };
  for (int n : {line, line - 1}) {
    if (has_tab_in_indent(at(n))) return {n, "a tab in the indentation", "spaces instead"};
  }
  if (message.find("flow not found") != std::string::npos && flow_line > 0) {
    return {flow_line, "a [ or { that is not closed or has something odd inside (" + message + ")",
            "closing it; comments start with #"};
  }
  for (int n : {line, line - 1}) {
    if (lacks_space_after_colon(at(n))) {
      return {n, "no space after the colon", "\"key: value\" with a space"};
    }
  }
  if (message == "illegal map value") {
    return {line, "a second \": \" inside a value", "quotes around the value"};
  }
  if (message == "end of map not found" || message == "end of sequence not found") {
    return {line, "a line that fits neither the section above nor its keys",
            "the same indentation as the lines around it"};
  }
  if (message.find("anchor is not defined") != std::string::npos) {
    return {line, "an alias (*name) without an anchor (&name) before it",
            "quotes if a leading * was meant as text"};
  }
  return {line, message, ""};
}

bool yaml_quote_is_closed(std::string_view text, size_t at) {
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '\'' && i + 1 < text.size() && text[i + 1] == '\'') {
        ++i;
      } else {
        return true;
      }
    }
  }
  return false;
}

}  // namespace keel

#include "keel/observe/page/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "keel/observe/console.h"
#include "keel/observe/metric_names.h"
#include "keel/observe/page/assets.h"
#include "keel/observe/page/charts.h"
#include "keel/observe/page/summary.h"

namespace keel::page {
namespace {

constexpr size_t kMaxPromptBytes = 1500, kMaxAnswerBytes = 4000, kMaxExpectedBytes = 400;
constexpr size_t kMaxConfigBytes = 100'000;

// Bytes of the UTF-8 character that begins at text[i]; 0 if there is none.
size_t character_bytes(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  const size_t n = lead < 0x80   ? 1
                   : lead < 0xc2 ? 0
                   : lead < 0xe0 ? 2
                   : lead < 0xf0 ? 3
                   : lead < 0xf5 ? 4
                                 : 0;
  if (n == 0 || i + n > text.size()) return 0;
  for (size_t k = i + 1; k < i + n; ++k) {
    if ((byte(k) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and code points above U+10FFFF.
  if (n == 3 && ((lead == 0xe0 && byte(i + 1) < 0xa0) || (lead == 0xed && byte(i + 1) > 0x9f))) {
    return 0;
  }
  if (n == 4 && ((lead == 0xf0 && byte(i + 1) < 0x90) || (lead == 0xf4 && byte(i + 1) > 0x8f))) {
    return 0;
  }
  return n;
}

// JSON that cannot end the script element that holds it.
std::string script_json(const OrderedJson& j) {
  std::string out;
  for (const char c : j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string card(std::string_view label, std::string_view value, std::string_view note = "") {
  return fmt::format(
      "<div class=\"card\"><div class=\"label\">{}</div><div class=\"value\">{}</div>"
      "<div class=\"note\">{}</div></div>\n",
      escape_html(label), escape_html(value), escape_html(note));
}

double total_seconds(const RunData& run) {
  double total = 0;
  for (const auto& record : run.records) {
    const auto s = record.get(metric::kTimeStep);
    if (s && std::isfinite(*s)) total += *s;
  }
  return total;
}

bool is_validation_mean(const Headline& h) {
  return h.metric.starts_with(metric::kValidationPrefix) &&
         h.metric.find("/mean@") != h.metric.npos;
}

std::string render_cards(const RunData& run, const std::vector<Headline>& rows) {
  std::string out = "<section class=\"cards\">\n";
  out += card("Steps", run.records.empty() ? "0" : std::to_string(run.records.back().step()),
              format_duration(total_seconds(run)) + " of training");
  const auto arrow = [&](const char* label, const auto& wanted) {
    const auto it = std::find_if(rows.begin(), rows.end(), wanted);
    if (it == rows.end()) return;
    const auto note =
        it->best ? fmt::format("best {} at step {}", short_number(*it->best), it->best_step) : "";
    out += card(label, short_number(it->first) + " → " + short_number(it->last), note);
  };
  const auto named = [](std::string_view name) {
    return [name](const Headline& h) { return h.metric == name; };
  };
  arrow("Validation", is_validation_mean);
  arrow("Training accuracy", named(metric::kAccuracy));
  arrow("Reward", named(metric::kRewardMean));
  arrow("Tokens per second", named(metric::kThroughput));
  if (const auto exact = is_exact(run)) {
    out += card("Sampling = training", *exact ? "bit-exact" : "not exact",
                *exact ? "largest difference 0" : "see rollout against training");
  }
  double memory = 0;
  for (const auto& record : run.records) {
    memory = std::max(memory, record.get(metric::kCpuMemory).value_or(0));
  }
  if (memory > 0) out += card("Peak memory", fmt::format("{:.2f} GB", memory));
  return out + "</section>\n";
}

std::string render_findings(const RunData& run) {
  std::string out = "<section id=\"findings\"><h2>What stands out</h2>\n";
  if (run.findings.empty()) {
    out += "<p class=\"quiet\">Nothing: no rule of the automatic diagnosis fired.</p>\n";
  }
  for (const auto& f : run.findings) {
    out += fmt::format(
        "<div class=\"finding {0}\"><span class=\"badge\">{0}</span><div><b>{1}.</b> {2}"
        "<div class=\"advice\">→ {3}</div></div></div>\n",
        to_string(f.severity), escape_html(f.title), escape_html(f.cause), escape_html(f.advice));
  }
  if (run.num_bad_lines > 0) {
    out += fmt::format(
        "<p class=\"quiet\">{} lines of metrics or samples could not be read (cut by a crash, or "
        "edited) and were left out.</p>\n",
        run.num_bad_lines);
  }
  return out + "</section>\n";
}

std::string render_table(const std::vector<Headline>& rows) {
  if (rows.empty()) return "";
  std::string out =
      "<section><h2>Numbers</h2><table><thead><tr><th></th><th>first</th><th>best</th>"
      "<th>last</th></tr></thead><tbody>\n";
  for (const auto& h : rows) {
    const auto best = h.best ? fmt::format("{} <span class=\"quiet\">step {}</span>",
                                           short_number(*h.best), h.best_step)
                             : "–";
    out +=
        fmt::format("<tr><td title=\"{}\">{}</td><td>{}</td><td>{}</td><td><b>{}</b></td></tr>\n",
                    escape_html(h.metric), escape_html(h.label), short_number(h.first), best,
                    short_number(h.last));
  }
  return out + "</tbody></table></section>\n";
}

std::string render_sample(const Sample& s, std::string_view kind) {
  const auto expected =
      s.expected.empty() ? "" : "expected " + escape_html(shorten(s.expected, kMaxExpectedBytes));
  return fmt::format(
      "<div class=\"sample\"><div class=\"head\"><span class=\"badge {0}-score\">{0}</span> score "
      "<b>{1}</b> <span class=\"quiet\">{2}</span></div><pre class=\"prompt\">{3}</pre>"
      "<pre class=\"answer\">{4}</pre></div>\n",
      kind, short_number(s.score), expected, escape_html(shorten(s.input, kMaxPromptBytes)),
      escape_html(shorten(s.output, kMaxAnswerBytes)));
}

std::string render_samples(const RunData& run) {
  if (run.samples.empty()) return "";
  std::string out = "<section id=\"samples\"><h2>Samples</h2>\n";
  for (const auto& set : run.samples) {
    const bool last = &set == &run.samples.back();
    out += fmt::format(
        "<details{}><summary>Step {} <span class=\"quiet\">{} answers</span>"
        "</summary>\n<div class=\"samples\">\n",
        last ? " open" : "", set.step, set.num_rows);
    // Where all scores are equal nothing is best or worst.
    const bool equal = set.worst.empty() || set.best.front().score == set.worst.front().score;
    for (const auto& s : set.best) out += render_sample(s, equal ? "sample" : "best");
    for (const auto& s : set.worst) out += render_sample(s, equal ? "sample" : "worst");
    out += "</div></details>\n";
  }
  return out + "</section>\n";
}

std::string render_log(const RunData& run) {
  if (run.log.empty()) return "";
  std::string out = "<section><h2>Warnings in the log</h2><ul class=\"log\">\n";
  for (const auto& line : run.log) {
    const auto times =
        line.count > 1 ? fmt::format(" <span class=\"quiet\">× {}</span>", line.count) : "";
    out += fmt::format("<li class=\"{}\">{}{}</li>\n", line.error ? "problem" : "warning",
                       escape_html(line.text), times);
  }
  return out + "</ul></section>\n";
}

std::string render_config(const RunData& run) {
  if (run.config.empty()) return "";
  return fmt::format(
      "<section><details><summary>Configuration</summary><pre>{}</pre></details>"
      "</section>\n",
      escape_html(shorten(run.config, kMaxConfigBytes)));
}

std::string render_charts(const OrderedJson& data) {
  std::string out = "<section><h2>Curves</h2>\n<div class=\"charts\" id=\"charts\"></div>\n";
  if (data["charts"].empty()) out += "<p class=\"quiet\">No finished step yet.</p>\n";
  if (data["thinned"] > 1) {
    out += fmt::format("<p class=\"quiet\">Every {}th step is drawn.</p>\n",
                       data["thinned"].get<size_t>());
  }
  return out + "</section>\n";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t n = character_bytes(text, i);
    if (n == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    switch (text[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += text.substr(i, n);
    }
    i += n;
  }
  return out;
}

std::string shorten(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + fmt::format(" … ({} more bytes)", text.size() - end);
}

std::string render_html(const RunData& run) {
  const auto data = chart_data(run);
  const auto rows = headlines(run);
  const auto title = escape_html(run.name);
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{0} – Keel report</title>\n<style>\n{1}</style></head>\n<body><main>\n"
      "<header><h1>{0}</h1><p class=\"quiet\">Keel training report</p></header>\n",
      title, kPageCss);
  out += render_cards(run, rows);
  out += render_findings(run);
  out += render_charts(data);
  out += render_samples(run);
  out += render_table(rows);
  out += render_log(run);
  out += render_config(run);
  out += "</main>\n<script type=\"application/json\" id=\"run-data\">" + script_json(data) +
         "</script>\n<script>\n";
  out += kChartJs;
  out += "</script>\n<script>\n";
  out += kPageJs;
  return out + "</script>\n</body></html>\n";
}

}  // namespace keel::page

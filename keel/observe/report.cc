#include "keel/observe/report.h"

#include <fmt/format.h>

#include "keel/io/atomic_file.h"
#include "keel/observe/page/html.h"
#include "keel/observe/page/run_data.h"
#include "keel/observe/page/summary.h"

namespace keel {

std::string write_report(const std::string& run_dir) {
  const auto html = page::render_html(page::read_run(run_dir));
  auto path = run_dir + "/report.html";
  write_file_atomic(path, html);
  return path;
}

OrderedJson summarize_run(const std::string& run_dir) {
  return page::summary_json(page::read_run(run_dir));
}

std::string report_markdown(const OrderedJson& summary) {
  auto out = fmt::format("# {}\n\n{} steps", summary["run"].get<std::string>(),
                         summary["last_step"].get<int64_t>());
  if (!summary["exact"].is_null()) {
    out += summary["exact"].get<bool>() ? ", sampling and training bit-exact"
                                        : ", sampling and training not exact";
  }
  out += "\n\n| | first | best | last |\n|--|--|--|--|\n";
  for (const auto& row : summary["headline"]) {
    const auto best = row["best"].is_null()
                          ? "–"
                          : fmt::format("{} (step {})", page::short_number(row["best"]),
                                        row["best_step"].get<int64_t>());
    out += fmt::format("| {} | {} | {} | {} |\n", row["label"].get<std::string>(),
                       page::short_number(row["first"]), best, page::short_number(row["last"]));
  }
  if (!summary["findings"].empty()) out += "\n";
  for (const auto& f : summary["findings"]) {
    out += fmt::format("- **{}**: {}. {} {}\n", f["severity"].get<std::string>(),
                       f["title"].get<std::string>(), f["cause"].get<std::string>(),
                       f["advice"].get<std::string>());
  }
  return out;
}

}  // namespace keel

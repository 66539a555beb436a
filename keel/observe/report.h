// What a run did, for people (one HTML file that works offline) and for scripts (JSON, Markdown).
//
// Reads <run_dir>/{metrics.jsonl, samples/step_*.jsonl, config.yaml, log.txt}; whatever is absent
// or cut by a crash is left out. The same files give the same bytes. Throws keel::Error: kInvalid
// if run_dir is not a directory, kResource if the report cannot be written.
#pragma once

#include <string>

#include "keel/base/json.h"

namespace keel {

// Writes <run_dir>/report.html atomically and returns its path. May be called while the run goes
// on.
std::string write_report(const std::string& run_dir);

// {"run", "steps", "last_step", "exact": true|false|null,
//  "metrics": {name: {"first", "last", "min", "max", "mean_last_10"}},   finite values only
//  "headline": [{"label", "metric", "first", "best", "best_step", "last"}],
//  "findings": [{"id", "severity", "title", "cause", "advice"}]}
OrderedJson summarize_run(const std::string& run_dir);

// The headline table and the findings of summarize_run as Markdown.
std::string report_markdown(const OrderedJson& summary);

}  // namespace keel

// The table of verbs. A verb file defines options, parses and calls a module; it holds no
// algorithm.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace keel::cli {

// What a verb does after parsing; returns the exit code.
using Action = std::function<int()>;

struct Verb {
  const char* name;
  const char* group;    // heading in `keel --help`
  const char* help;     // one line
  const char* usage;    // "keel config [FILE] [key=value ...]"
  const char* example;  // works as it stands in the project's folder
  Action (*define)(CLI::App& app);
};

// In the order of `keel --help`.
std::span<const Verb> verbs();

Action define_train(CLI::App& app);
Action define_rollout(CLI::App& app);
Action define_eval(CLI::App& app);
Action define_report(CLI::App& app);
Action define_export(CLI::App& app);
Action define_bench(CLI::App& app);
Action define_convert(CLI::App& app);
Action define_init(CLI::App& app);
Action define_check(CLI::App& app);
Action define_plan(CLI::App& app);
Action define_config(CLI::App& app);
Action define_tokenize(CLI::App& app);
Action define_logprobs(CLI::App& app);
Action define_score(CLI::App& app);
Action define_balance(CLI::App& app);
Action define_sched(CLI::App& app);
Action define_simulate(CLI::App& app);
Action define_doctor(CLI::App& app);

// What follows a verb that takes a configuration: [FILE] [key=value ...] in any order. The first
// argument that is no override is the file.
struct ConfigArgs {
  std::string file;
  std::vector<std::string> overrides;
};
ConfigArgs split_config_args(const std::vector<std::string>& args);

}  // namespace keel::cli

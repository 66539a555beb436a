#include "keel/rl/scorer.h"

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"
#include "keel/reward/rules.h"

namespace keel::rl {

Scorer::Scorer(const RewardSection& config, const std::string& log_path) : rule_(config.rule) {
  if (!rule_.empty()) require_rule(rule_);
  if (config.path.empty()) return;
  PythonRewardOptions options;
  options.spec = config.path + ":" + config.function;
  options.num_workers = static_cast<int>(config.num_workers);
  options.timeout_s = config.timeout_s;
  options.log_path = log_path;
  python_ = std::make_unique<PythonReward>(options);
}

std::string Scorer::rule_of(const Row& row) const {
  return rule_.empty() ? rule_for_data_source(row.data_source) : rule_;
}

void Scorer::check(const Dataset& data) const {
  if (python_) return;
  for (const Row& row : data.rows) {
    KEEL_REQUIRE(!rule_of(row).empty(),
                 "[{}:{} data_source] expected a data_source with a known rule, got '{}'; try "
                 "reward.rule=last_number",
                 data.files[static_cast<size_t>(row.file)], row.row, row.data_source);
  }
}

std::vector<Score> Scorer::score(std::span<const Answer> answers) {
  std::vector<Score> scores(answers.size());
  if (!python_) {
    for (size_t i = 0; i < answers.size(); ++i) {
      scores[i].value =
          keel::score(rule_of(*answers[i].row), answers[i].text, answers[i].row->ground_truth);
    }
    return scores;
  }
  std::vector<RewardSample> samples;
  for (const Answer& a : answers) {
    RewardSample s;
    s.data_source = a.row->data_source;
    s.solution = a.text;
    s.ground_truth = a.row->ground_truth;
    s.extra_info = a.row->extra.is_object() ? a.row->extra.value("extra_info", Json()) : Json();
    s.prompt = a.row->prompt.is_chat() ? to_json(a.row->prompt.messages) : Json(a.row->prompt.text);
    s.token_ids.assign(a.ids.begin(), a.ids.end());
    s.columns = a.row->extra.is_object() ? a.row->extra : Json::object();
    if (!a.row->ground_truth.empty()) s.columns["ground_truth"] = a.row->ground_truth;
    samples.push_back(std::move(s));
  }
  const auto results = python_->score(samples);
  for (size_t i = 0; i < results.size(); ++i) {
    scores[i] = {results[i].score.value_or(0.0), results[i].extra, results[i].error};
    num_failed_ += !results[i].error.empty();
  }
  return scores;
}

}  // namespace keel::rl

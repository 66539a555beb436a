#include "keel/rl/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "keel/base/error.h"
#include "keel/rl/step_metrics.h"

namespace keel::rl {
namespace {

// Values of one data source, one entry a row.
struct Source {
  std::vector<double> mean, std, best, worst, majority;
  std::map<int64_t, std::vector<double>> pass;  // by k
};

double majority_score(std::span<const Experience> answers) {
  std::map<std::string, int64_t> votes;
  for (const Experience& e : answers) ++votes[e.text];
  const Experience* winner = &answers[0];
  for (const Experience& e : answers) {
    if (votes[e.text] > votes[winner->text]) winner = &e;
  }
  return winner->score.value;
}

std::string source_of(const Row& row) {
  return row.data_source.empty() ? "default" : row.data_source;
}

// What a row's answers amount to, as doubles that travel between ranks.
constexpr size_t kFields = 7;
void append_row(std::span<const Experience> answers, double source, std::vector<double>& out) {
  std::vector<double> scores;
  double right = 0;
  for (const Experience& e : answers) {
    scores.push_back(e.score.value);
    right += e.score.value > 0.5;
  }
  const double mean = mean_of(scores);
  double square = 0;
  for (const double s : scores) square += (s - mean) * (s - mean);
  out.insert(out.end(),
             {source, mean, std::sqrt(square / static_cast<double>(scores.size())),
              *std::max_element(scores.begin(), scores.end()),
              *std::min_element(scores.begin(), scores.end()), majority_score(answers), right});
}

void add_row(std::span<const double> fields, int64_t n, Source& source) {
  source.mean.push_back(fields[1]);
  source.std.push_back(fields[2]);
  source.best.push_back(fields[3]);
  source.worst.push_back(fields[4]);
  source.majority.push_back(fields[5]);
  for (int64_t k = 1; k <= n; k *= 2)
    source.pass[k].push_back(pass_at_k(n, static_cast<int64_t>(fields[6]), k));
}

}  // namespace

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1;
  double miss = 1;
  for (int64_t i = n - c + 1; i <= n; ++i)
    miss *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - miss;
}

double add_validation_metrics(parallel::Group& group, std::span<const Experience> answers,
                              std::span<const Row> rows, int64_t n, StepRecord& record) {
  KEEL_CHECK(n > 0 && std::ssize(answers) % n == 0, "{} answers, {} each", answers.size(), n);
  std::map<std::string, double> numbers;  // of the sources, equal on all ranks
  for (const Row& row : rows)
    numbers.try_emplace(source_of(row), static_cast<double>(numbers.size()));
  std::vector<double> own;
  for (size_t i = 0; i < answers.size(); i += static_cast<size_t>(n)) {
    const auto source = numbers.at(source_of(rows[static_cast<size_t>(answers[i].row)]));
    append_row(answers.subspan(i, static_cast<size_t>(n)), source, own);
  }
  std::map<double, Source> sources;
  std::vector<double> means;
  for (const auto& rank : group.all_gather(own)) {
    for (size_t i = 0; i < rank.size(); i += kFields) {
      add_row(std::span(rank).subspan(i, kFields), n, sources[rank[i]]);
      means.push_back(rank[i + 1]);
    }
  }
  for (const auto& [name, number] : numbers) {
    const Source& s = sources[number];
    const auto core = fmt::format("val-core/{}/reward/", name),
               aux = fmt::format("val-aux/{}/reward/", name);
    record.set(fmt::format("{}mean@{}", core, n), mean_of(s.mean));
    if (n == 1) continue;
    record.set(fmt::format("{}best@{}/mean", core, n), mean_of(s.best));
    record.set(fmt::format("{}maj@{}/mean", core, n), mean_of(s.majority));
    record.set(fmt::format("{}std@{}", aux, n), mean_of(s.std));
    record.set(fmt::format("{}worst@{}/mean", aux, n), mean_of(s.worst));
    for (const auto& [k, values] : s.pass)
      record.set(fmt::format("{}pass@{}", aux, k), mean_of(values));
  }
  return mean_of(means);
}

}  // namespace keel::rl

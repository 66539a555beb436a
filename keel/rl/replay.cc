#include "keel/rl/replay.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "keel/base/error.h"
#include "keel/rl/generator.h"

namespace keel::rl {
namespace {

namespace fs = std::filesystem;

template <class T>
T field(const Json& row, const char* name, const std::string& where) {
  const auto it = row.find(name);
  KEEL_REQUIRE(it != row.end(),
               "[{} {}] expected a row as 'keel train' writes it, got none of this field; try to "
               "record the run again",
               where, name);
  try {
    return it->template get<T>();
  } catch (const Json::exception&) {
    throw_invalid("[{} {}] expected what 'keel train' writes there, got {}", where, name,
                  it->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
  }
}

template <class T>
T field_or(const Json& row, const char* name, const std::string& where, T fallback) {
  return row.contains(name) ? field<T>(row, name, where) : std::move(fallback);
}

Json parse(const std::string& line, const std::string& where) {
  Json row = Json::parse(line, nullptr, false);
  KEEL_REQUIRE(row.is_object(),
               "[{}] expected one JSON object, got a line that is cut or damaged: ...{}; try to "
               "record the run again",
               where, line.substr(line.size() - std::min<size_t>(line.size(), 30)));
  return row;
}

// "row-group"
void parse_uid(const std::string& uid, const std::string& where, Experience& e) {
  const char* end = uid.data() + uid.size();
  const auto row = std::from_chars(uid.data(), end, e.row);
  const bool dash = row.ec == std::errc() && row.ptr != end && *row.ptr == '-';
  const auto group = dash ? std::from_chars(row.ptr + 1, end, e.group) : row;
  KEEL_REQUIRE(dash && group.ec == std::errc() && group.ptr == end && e.row >= 0 && e.group >= 0,
               "[{} uid] expected row and group like 12-0, got {}", where, uid);
}

rollout::StopReason parse_stop_reason(const std::string& name, const std::string& where) {
  using R = rollout::StopReason;
  for (const R reason : {R::kEos, R::kStop, R::kLength, R::kAbort}) {
    if (name == rollout::to_string(reason)) return reason;
  }
  throw_invalid("[{} stop_reason] expected eos, stop, length or abort, got {}", where, name);
}

std::vector<int32_t> to_ids(const std::vector<int64_t>& values, int64_t vocab,
                            const std::string& where) {
  std::vector<int32_t> ids;
  for (const int64_t id : values) {
    KEEL_REQUIRE(id >= 0 && id < vocab,
                 "[{}] expected token ids from 0 to {}, got {}; try the model and tokenizer of the "
                 "recorded run",
                 where, vocab - 1, id);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

void check_kept(const rollout::Sample& s, const std::string& where) {
  const auto& offsets = s.kept_offsets;
  const bool fits = offsets.empty()
                        ? s.kept_ids.empty()
                        : offsets.size() == s.log_probs.size() + 1 && offsets.front() == 0 &&
                              offsets.back() == std::ssize(s.kept_ids) &&
                              std::is_sorted(offsets.begin(), offsets.end());
  KEEL_REQUIRE(fits,
               "[{} kept_offsets] expected ascending places in kept_ids, one more than "
               "log_probs; try to record the run again",
               where);
}

void check_lengths(const rollout::Sample& s, int64_t max_new_tokens, const std::string& where) {
  const int64_t answer = std::ssize(s.ids) - s.num_prompt;
  KEEL_REQUIRE(s.num_prompt > 0 && answer > 0 && answer <= max_new_tokens,
               "[{}] expected a prompt and an answer of 1 to rollout.max_new_tokens = {} tokens, "
               "got {} and {}",
               where, max_new_tokens, s.num_prompt, answer);
  KEEL_REQUIRE(std::ssize(s.log_probs) == answer && std::ssize(s.loss_mask) == answer,
               "[{} log_probs] expected one for each of the {} answer tokens, got {}", where,
               answer, s.log_probs.size());
  for (const float p : s.log_probs) {
    KEEL_REQUIRE(std::isfinite(p) && p <= 0, "[{} log_probs] expected numbers up to 0, got {}",
                 where, p);
  }
}

}  // namespace

Replay::Replay(const TrainConfig& config, const PromptSet& set, int64_t vocab)
    : config_(config), set_(set), vocab_(vocab) {}

std::string Replay::path(int64_t step) const {
  return fmt::format("{}/step_{}.jsonl", config_.trainer.replay, step);
}

void Replay::check(int64_t first, int64_t last) const {
  for (int64_t step = first; step <= last; ++step) {
    KEEL_REQUIRE(fs::exists(path(step)),
                 "[{}] expected the recorded answers of step {}, found no such file; try "
                 "trainer.steps={}",
                 path(step), step, std::max<int64_t>(1, step - 1));
  }
  if (first <= last) read(first);
}

Experience Replay::read_row(const Json& row, const std::string& where) const {
  Experience e;
  parse_uid(field<std::string>(row, "uid", where), where, e);
  rollout::Sample& s = e.sample;
  s.ids = to_ids(field<std::vector<int64_t>>(row, "ids", where), vocab_, where);
  s.num_prompt = field<int32_t>(row, "num_prompt", where);
  s.group = e.group;
  s.log_probs = field<std::vector<float>>(row, "log_probs", where);
  s.loss_mask = field_or(row, "loss_mask", where, std::vector<uint8_t>(s.log_probs.size(), 1));
  s.kept_ids = to_ids(field_or(row, "kept_ids", where, std::vector<int64_t>()), vocab_, where);
  s.kept_offsets = field_or(row, "kept_offsets", where, std::vector<int64_t>());
  s.params = sampling_params(config_.rollout);
  s.params.temperature = field<float>(row, "temperature", where);
  s.stop_reason = parse_stop_reason(field<std::string>(row, "stop_reason", where), where);
  s.numerics_id = field<std::string>(row, "numerics_id", where);
  e.text = field<std::string>(row, "output", where);
  e.score.value = field<double>(row, "score", where);
  e.score.extra = row.value("extra", Json());
  e.score.error = field_or(row, "reward_error", where, std::string());
  check_lengths(s, config_.rollout.max_new_tokens, where);
  check_kept(s, where);
  const bool same_prompt =
      e.row < std::ssize(set_.prompts) &&
      std::ranges::equal(std::span(s.ids).first(static_cast<size_t>(s.num_prompt)),
                         set_.prompts[static_cast<size_t>(e.row)].ids);
  KEEL_REQUIRE(same_prompt,
               "[{}] expected the prompt of row {} of data.train_files in this model's tokens, got "
               "another; try the data and the tokenizer of the recorded run",
               where, e.row);
  return e;
}

void Replay::check_groups(const ReplayedStep& step, const std::string& path) const {
  const auto n = static_cast<size_t>(config_.rollout.n);
  const auto& answers = step.answers;
  const auto same_group = [](const Experience& a, const Experience& b) {
    return a.group == b.group && a.row == b.row;
  };
  for (size_t begin = 0, end = 0; begin < answers.size(); begin = end) {
    while (end < answers.size() && same_group(answers[begin], answers[end])) ++end;
    KEEL_REQUIRE(end - begin == n, "[{}:{}] expected groups of rollout.n = {} answers, got {}",
                 path, begin + 1, n, end - begin);
  }
  const int64_t groups = std::ssize(answers) / config_.rollout.n,
                wanted = config_.data.train_batch_size;
  const bool may_be_fewer = config_.dynamic_sampling.enable &&
                            config_.dynamic_sampling.fallback == SamplingFallback::kPartial;
  KEEL_REQUIRE(groups == wanted || (may_be_fewer && groups < wanted),
               "[{}] expected the answers to data.train_batch_size = {} prompts, got those to {}",
               path, wanted, groups);
}

ReplayedStep Replay::read(int64_t step) const {
  const std::string path = this->path(step);
  std::ifstream in(path);
  KEEL_REQUIRE(in.good(), "[{}] expected a file that can be read", path);
  ReplayedStep out;
  int64_t recorded = 0, number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    const Json row = parse(line, where);
    out.answers.push_back(read_row(row, where));
    recorded = field<int64_t>(row, "num_answers", where);
    out.gen_batches = field<int64_t>(row, "gen_batches", where);
  }
  KEEL_REQUIRE(number == recorded,
               "[{}] expected all {} answers of the step, got {}; try to record the run with "
               "trainer.log_samples=-1 on one rank",
               path, recorded, number);
  check_groups(out, path);
  if (out.answers.empty()) {
    out.gen_batches = config_.dynamic_sampling.max_batches;  // all were drawn, none had signal
  } else {
    out.numerics_id = out.answers.front().sample.numerics_id;
  }
  return out;
}

std::vector<Experience> share_of(std::vector<Experience> answers, int64_t n, int rank, int ranks) {
  const int64_t groups = std::ssize(answers) / n, share = (groups + ranks - 1) / ranks * n;
  const auto begin = answers.begin() + std::min(std::ssize(answers), rank * share);
  const auto end = answers.begin() + std::min(std::ssize(answers), (rank + 1) * share);
  return {std::make_move_iterator(begin), std::make_move_iterator(end)};
}

}  // namespace keel::rl

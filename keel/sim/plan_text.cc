#include <algorithm>

#include "keel/base/json.h"
#include "keel/sim/plan.h"

namespace keel::sim {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string layout_text(const SimRun& run) {
  const auto t = train_layout(run);
  const auto r = rollout_layout(run);
  std::string out = fmt::format("train tp{} pp{} cp{} ep{} dp{}", t.tp, t.pp, t.cp, t.ep, t.dp);
  if (!run.train.recompute.empty()) out += ", recompute " + run.train.recompute;
  if (!run.train.optimizer.empty()) out += ", optimizer " + run.train.optimizer;
  return out + fmt::format("; rollout tp{} ep{} dp{}, {} slots", r.tp, r.ep, r.dp,
                           run.engine.max_num_seqs);
}

std::string memory_text(const MemoryUse& use) {
  std::string out = fmt::format("{:.1f} GiB (", use.total() / kGiB);
  bool first = true;
  for (const auto& [name, bytes] : use.parts) {
    if (bytes < 0.05 * kGiB) continue;
    out += fmt::format("{}{} {:.1f}", first ? "" : ", ", name, bytes / kGiB);
    first = false;
  }
  return out + ")";
}

std::string choice_text(const PlanChoice& c, const std::string& title) {
  std::string out = fmt::format("{}: {:.1f} s a step\n  {}\n", title, c.step_s, layout_text(c.run));
  for (const auto& s : c.stages) {
    if (s.name == "step_s") continue;
    out += fmt::format("  {:<14} {:>9.1f} s", s.name.substr(0, s.name.size() - 2), s.seconds);
    if (s.spread > 0) out += fmt::format(" (spread {:.1f})", s.spread);
    if (!s.limit.empty()) out += "  limited by " + s.limit;
    out += "\n";
  }
  out += fmt::format("  memory         training stage {} {}\n", c.train_memory.stage,
                     memory_text(c.train_memory));
  out += fmt::format("                 rollout {}, {} tokens of cache\n",
                     memory_text(c.rollout_memory), c.kv_tokens);
  return out;
}

OrderedJson memory_json(const MemoryUse& use) {
  OrderedJson out = {{"stage", use.stage}, {"total_bytes", use.total()}};
  for (const auto& [name, bytes] : use.parts) out["parts"][name] = bytes;
  return out;
}

OrderedJson choice_json(const PlanChoice& c) {
  const auto t = train_layout(c.run);
  const auto r = rollout_layout(c.run);
  OrderedJson out = {{"step_s", c.step_s}};
  out["train"] = {{"tp", t.tp},
                  {"pp", t.pp},
                  {"cp", t.cp},
                  {"ep", t.ep},
                  {"etp", t.etp},
                  {"dp", t.dp},
                  {"recompute", c.run.train.recompute},
                  {"optimizer", c.run.train.optimizer}};
  out["rollout"] = {{"tp", r.tp},
                    {"ep", r.ep},
                    {"dp", r.dp},
                    {"max_num_seqs", c.run.engine.max_num_seqs},
                    {"graph_sizes", c.run.engine.graph_sizes},
                    {"kv_tokens", c.kv_tokens}};
  for (const auto& s : c.stages) {
    out["stages"][s.name] = {{"seconds", s.seconds}, {"spread", s.spread}, {"limit", s.limit}};
  }
  out["memory"] = {{"train", memory_json(c.train_memory)},
                   {"rollout", memory_json(c.rollout_memory)}};
  out["changes"] = c.changes;
  return out;
}

}  // namespace

std::string plan_text(const PlanResult& result, const HardwareSpec& hardware) {
  std::string out = fmt::format(
      "{} legal training layouts, {} fit in {:.1f} GiB; {} rollout set-ups fit\n",
      result.num_layouts, result.num_fitting, hardware.memory_bytes / kGiB, result.num_rollouts);
  for (size_t i = 0; i < result.best.size(); ++i) {
    const auto& c = result.best[i];
    out += "\n" + choice_text(c, fmt::format("plan {}", i + 1));
    if (!result.own) continue;
    const double gain = result.own->step_s / c.step_s;
    out += fmt::format(
        "  against yours  {:.2f} x as fast: {}\n", gain,
        c.changes.empty() ? "the same set-up" : fmt::format("{}", fmt::join(c.changes, ", ")));
  }
  if (result.own) out += "\n" + choice_text(*result.own, "yours");
  for (const auto& f : result.own_findings) {
    out += fmt::format("  {}: {}\n", f.error ? "error" : "warning", f.message);
  }
  return out;
}

OrderedJson plan_json(const PlanResult& result) {
  OrderedJson out = {{"num_layouts", result.num_layouts},
                     {"num_fitting", result.num_fitting},
                     {"num_rollouts", result.num_rollouts}};
  out["plans"] = OrderedJson::array();
  for (const auto& c : result.best) out["plans"].push_back(choice_json(c));
  if (result.own) out["own"] = choice_json(*result.own);
  for (const auto& f : result.own_findings) {
    out["own_findings"].push_back(
        {{"level", f.error ? "error" : "warn"}, {"rule", f.rule}, {"message", f.message}});
  }
  return out;
}

std::string plan_config(const PlanChoice& c) {
  const auto& w = c.run.workload;
  const auto t = train_layout(c.run);
  std::string out = fmt::format(
      "# Planned for {} on {} x {}: {:.1f} s a step predicted.\n# {}.\n"
      "# The settings below hold for each data-parallel rank; give model.path and "
      "data.train_files\n"
      "# with them: keel train PLAN.yaml model.path=DIR data.train_files=FILE\n",
      c.run.model, c.run.devices, c.run.hardware, c.step_s, layout_text(c.run));
  out += fmt::format("model:\n  dtype: bf16\ndata:\n  train_batch_size: {}\n", w.prompts);
  if (w.prompt_len.max > 0) out += fmt::format("  max_prompt_length: {}\n", w.prompt_len.max);
  out += fmt::format(
      "rollout:\n  n: {}\n  max_new_tokens: {}\n  max_num_seqs: {}\n", w.samples_per_prompt,
      w.response_len.max > 0 ? w.response_len.max : w.total_len.max, c.run.engine.max_num_seqs);
  out += fmt::format("  max_batched_tokens: {}\n", c.run.engine.max_batched_tokens);
  out += fmt::format("  kv_blocks: {}\n", c.kv_tokens / 16);
  out += fmt::format("actor:\n  mini_batch_size: {}\n  micro_batch_tokens: {}\n",
                     w.minibatch_prompts, (longest_sequence(w) + t.cp - 1) / t.cp);
  return out;
}

}  // namespace keel::sim

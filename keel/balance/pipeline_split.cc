#include "keel/balance/pipeline_split.h"

#include <algorithm>
#include <numeric>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

void check(const PipelineTask& task) {
  KEEL_REQUIRE(task.num_stages >= 1 && task.num_micro_batches >= 1,
               "[balance.pipeline] expected num_stages and num_micro_batches >= 1, got {} and {}",
               task.num_stages, task.num_micro_batches);
  KEEL_REQUIRE(task.memory_bytes >= 0, "[balance.pipeline] expected memory_bytes >= 0, got {}",
               task.memory_bytes);
  const auto check_layer = [](const LayerCost& l, const std::string& name) {
    KEEL_REQUIRE(l.time >= 0 && l.weight_bytes >= 0 && l.activation_bytes >= 0,
                 "[balance.pipeline] expected times and bytes >= 0, got {}, {}, {} at {}", l.time,
                 l.weight_bytes, l.activation_bytes, name);
  };
  check_layer(task.embedding, "embedding");
  check_layer(task.head, "head");
  for (size_t i = 0; i < task.layers.size(); ++i) {
    check_layer(task.layers[i], fmt::format("layer {}", i));
  }
}

int64_t in_flight(const PipelineTask& task, int32_t stage) {
  return std::min(task.num_stages - stage, task.num_micro_batches);
}

struct Stage {
  int64_t time = 0;
  int64_t memory = 0;

  void add(const LayerCost& l, int64_t in_flight) {
    time += l.time;
    memory += l.weight_bytes + in_flight * l.activation_bytes;
  }
};

Stage empty_stage(const PipelineTask& task, int32_t stage) {
  Stage s;
  if (stage == 0) s.add(task.embedding, in_flight(task, stage));
  if (stage == task.num_stages - 1) s.add(task.head, in_flight(task, stage));
  return s;
}

// Fills stages from the last to the first up to `limit`; empty if the first layers find no place.
std::vector<int32_t> fill(const PipelineTask& task, int64_t limit) {
  const auto num_layers = static_cast<int32_t>(task.layers.size());
  std::vector<int32_t> begin(task.num_stages + 1, num_layers);
  const bool enough = num_layers >= task.num_stages;
  int32_t next = num_layers;  // layers 0 .. next - 1 have no stage yet
  for (int32_t stage = task.num_stages - 1; stage >= 0; --stage) {
    Stage s = empty_stage(task, stage);
    const auto over = [&](const Stage& x) {
      return x.time > limit || (task.memory_bytes > 0 && x.memory > task.memory_bytes);
    };
    if (over(s)) return {};
    const int32_t before = next;
    while (next > (enough ? stage : 0)) {  // earlier stages keep a layer each
      Stage with = s;
      with.add(task.layers[next - 1], in_flight(task, stage));
      if (over(with)) break;
      s = with;
      --next;
    }
    if (enough && next == before) return {};
    begin[stage] = next;
  }
  return next == 0 ? begin : std::vector<int32_t>{};
}

void describe(const PipelineTask& task, PipelinePlan& plan) {
  plan.stage_time.clear();
  plan.stage_memory.clear();
  for (int32_t stage = 0; stage < task.num_stages; ++stage) {
    Stage s = empty_stage(task, stage);
    for (int32_t l = plan.layer_begin[stage]; l < plan.layer_begin[stage + 1]; ++l) {
      s.add(task.layers[l], in_flight(task, stage));
    }
    plan.stage_time.push_back(s.time);
    plan.stage_memory.push_back(s.memory);
  }
  const int64_t sum = std::accumulate(plan.stage_time.begin(), plan.stage_time.end(), int64_t{0});
  const int64_t slowest = *std::max_element(plan.stage_time.begin(), plan.stage_time.end());
  plan.step_time = sum + (task.num_micro_batches - 1) * slowest;
  plan.bubble = plan.step_time == 0
                    ? 0
                    : 1 - static_cast<double>(sum) * task.num_micro_batches /
                              (static_cast<double>(plan.step_time) * task.num_stages);
}

}  // namespace

PipelinePlan split_pipeline(const PipelineTask& task) {
  check(task);
  int64_t high = task.embedding.time + task.head.time;
  for (const auto& l : task.layers) high += l.time;
  auto best = fill(task, high);
  if (best.empty()) {
    int64_t bytes = task.embedding.weight_bytes + task.head.weight_bytes;
    for (const auto& l : task.layers) bytes += l.weight_bytes;
    throw_invalid(
        "[balance.pipeline] expected layers that fit into {} stages of {} bytes, got {} bytes of "
        "weights and 1F1B's activations; try more stages or smaller micro-batches",
        task.num_stages, task.memory_bytes, bytes);
  }
  int64_t low = 0;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    auto found = fill(task, middle);
    if (found.empty()) {
      low = middle + 1;
    } else {
      high = middle;
      best = std::move(found);
    }
  }
  PipelinePlan plan;
  plan.layer_begin = std::move(best);
  describe(task, plan);
  return plan;
}

std::string validate(const PipelineTask& task, const PipelinePlan& plan) {
  if (std::ssize(plan.layer_begin) != task.num_stages + 1 || plan.layer_begin.front() != 0 ||
      plan.layer_begin.back() != std::ssize(task.layers) ||
      !std::is_sorted(plan.layer_begin.begin(), plan.layer_begin.end())) {
    return fmt::format("{} stage bounds do not cover {} layers in order", plan.layer_begin.size(),
                       task.layers.size());
  }
  PipelinePlan right;
  right.layer_begin = plan.layer_begin;
  describe(task, right);
  if (right.stage_time != plan.stage_time || right.stage_memory != plan.stage_memory) {
    return "stated times or memory of the stages are wrong";
  }
  if (right.step_time != plan.step_time || right.bubble != plan.bubble) {
    return fmt::format("states step time {}, has {}", plan.step_time, right.step_time);
  }
  for (size_t s = 0; s < plan.stage_memory.size(); ++s) {
    if (task.memory_bytes > 0 && plan.stage_memory[s] > task.memory_bytes) {
      return fmt::format("stage {} needs {} bytes of {}", s, plan.stage_memory[s],
                         task.memory_bytes);
    }
  }
  return "";
}

}  // namespace keel::balance

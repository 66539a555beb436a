// Splits a model's layers into pipeline stages of consecutive layers so that the slowest stage is
// as fast as possible, within each device's memory. Pure: same input, same plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::balance {

struct LayerCost {
  int64_t time = 0;              // of one micro-batch, forward and backward, any unit
  int64_t weight_bytes = 0;      // weights, gradients, optimizer state
  int64_t activation_bytes = 0;  // kept by one micro-batch until its backward
};

struct PipelineTask {
  std::vector<LayerCost> layers;
  LayerCost embedding;  // on the first stage
  LayerCost head;       // on the last stage
  int32_t num_stages = 1;
  int32_t num_micro_batches = 1;
  int64_t memory_bytes = 0;  // of a device; 0 = no limit
};

struct PipelinePlan {
  std::vector<int32_t> layer_begin;   // [num_stages + 1]
  std::vector<int64_t> stage_time;    // [num_stages] of one micro-batch
  std::vector<int64_t> stage_memory;  // [num_stages] peak under 1F1B
  int64_t step_time = 0;              // 1F1B estimate: fill and drain plus the slowest stage's beat
  double bubble = 0;                  // share of device time in which a stage waits
};

// 1F1B keeps min(num_stages - stage, num_micro_batches) micro-batches in flight on a stage. The
// smallest largest stage time is found by bisection; layers go to the latest stage that can take
// them, because early stages hold more activations. Every stage gets a layer where there are
// enough. Throws Error(kInvalid) if a number is negative or < 1 where it must not be, or if no
// split fits the memory; the message names the stage count or the bytes that are missing.
PipelinePlan split_pipeline(const PipelineTask& task);

// Empty if stages are consecutive and complete, times, memory and estimate are right and memory
// suffices; otherwise what is wrong.
std::string validate(const PipelineTask& task, const PipelinePlan& plan);

}  // namespace keel::balance

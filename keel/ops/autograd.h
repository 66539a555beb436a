// Glue between kernels and torch's autograd: a Node subclass per op holds what its backward needs,
// typed. Parameters are not autograd leaves: a node adds to Parameter::grad itself, in f32 and in
// packed layout.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>

namespace keel::ops {

inline at::Tensor new_f32(at::IntArrayRef sizes) { return at::empty(sizes, at::kFloat); }

// Makes `out` the output of `node` with the given tensor inputs; backward returns one gradient for
// each.
template <class NodeType, class... Inputs>
void record(at::Tensor& out, const c10::intrusive_ptr<NodeType>& node, const Inputs&... inputs) {
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  torch::autograd::set_history(out, node);
}

// True when an op must record itself.
inline bool recording() { return c10::GradMode::is_enabled(); }

}  // namespace keel::ops

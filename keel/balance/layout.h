// Which parallel layouts a model allows, and what to change where one is not allowed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keel::balance {

struct LayoutModel {
  int32_t num_layers = 1;
  int32_t num_heads = 1;
  int32_t num_kv_heads = 1;
  int32_t intermediate = 1;      // width of dense feed-forward layers
  int32_t num_experts = 0;       // 0 = dense
  int32_t moe_intermediate = 0;  // width of one expert
};

// Attention runs on tp * cp * dp ranks of each stage, experts on etp * ep * (what is left) of them.
struct Layout {
  int32_t tp = 1;       // tensor
  int32_t pp = 1;       // pipeline
  int32_t cp = 1;       // context (ring * Ulysses)
  int32_t ulysses = 1;  // part of cp
  int32_t ep = 1;       // experts
  int32_t etp = 1;      // tensor within an expert
  int32_t dp = 1;       // data
  bool operator==(const Layout&) const = default;
};

// Empty if the layout is legal on `world_size` ranks; otherwise one line for each broken rule, as
// "[layout.tp] expected a divisor of 32 heads, got 5; try 4 or 8". Rules: the product of tp, pp, cp
// and dp is the world; tp divides heads and feed-forward width, and KV heads or a multiple of them
// (KV heads are then copied); Ulysses divides cp and a rank's heads; each stage gets a layer; ep
// divides experts, etp their width, both together the ranks of a stage.
std::vector<std::string> layout_faults(const LayoutModel& model, const Layout& layout,
                                       int32_t world_size);

// All legal layouts with Ulysses degree 1, in lexicographic order of (tp, pp, cp, ep, etp).
std::vector<Layout> legal_layouts(const LayoutModel& model, int32_t world_size);

}  // namespace keel::balance

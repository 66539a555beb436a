#include "keel/balance/layout.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

std::vector<int32_t> divisors(int32_t n) {
  std::vector<int32_t> out;
  for (int32_t d = 1; d <= n; ++d) {
    if (n % d == 0) out.push_back(d);
  }
  return out;
}

// "try 4" or "try 4 or 8": the nearest allowed values below and above.
template <class Allowed>
std::string suggest(int32_t got, int32_t most, const Allowed& allowed) {
  int32_t below = got - 1;
  int32_t above = got + 1;
  while (below >= 1 && !allowed(below)) --below;
  while (above <= most && !allowed(above)) ++above;
  if (below >= 1 && above <= most) return fmt::format("try {} or {}", below, above);
  if (below >= 1) return fmt::format("try {}", below);
  return above <= most ? fmt::format("try {}", above) : "no other value helps";
}

bool kv_heads_allow(int32_t kv_heads, int32_t tp) {
  return kv_heads % tp == 0 || tp % kv_heads == 0;
}

class Rules {
 public:
  Rules(const LayoutModel& model, const Layout& layout, int32_t world)
      : m_(model), l_(layout), world_(world) {}

  std::vector<std::string> faults() {
    for (const auto& [name, value] : {std::pair{"tp", l_.tp},
                                      {"pp", l_.pp},
                                      {"cp", l_.cp},
                                      {"ulysses", l_.ulysses},
                                      {"ep", l_.ep},
                                      {"etp", l_.etp},
                                      {"dp", l_.dp}}) {
      if (value < 1) add("[layout.{}] expected a degree >= 1, got {}; try 1", name, value);
    }
    if (!out_.empty()) return out_;
    world();
    tensor();
    context();
    if (l_.pp > m_.num_layers) {
      add("[layout.pp] expected at most {} stages (one layer each), got {}; try {}", m_.num_layers,
          l_.pp, m_.num_layers);
    }
    experts();
    return out_;
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    out_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void world() {
    const int64_t fixed = static_cast<int64_t>(l_.tp) * l_.pp * l_.cp;
    if (fixed * l_.dp == world_) return;
    if (world_ % fixed == 0) {
      add("[layout.dp] expected tp * pp * cp * dp = {} ranks, got {} * {} * {} * {}; try dp = {}",
          world_, l_.tp, l_.pp, l_.cp, l_.dp, world_ / fixed);
    } else {
      add("[layout] expected tp * pp * cp that divides {} ranks, got {} * {} * {} = {}; try {} "
          "ranks",
          world_, l_.tp, l_.pp, l_.cp, fixed, (world_ + fixed - 1) / fixed * fixed);
    }
  }

  void tensor() {
    if (m_.num_heads % l_.tp != 0) {
      add("[layout.tp] expected a divisor of {} heads, got {}; {}", m_.num_heads, l_.tp,
          suggest(l_.tp, m_.num_heads, [&](int32_t t) { return m_.num_heads % t == 0; }));
    }
    if (!kv_heads_allow(m_.num_kv_heads, l_.tp)) {
      add("[layout.tp] expected a divisor or a multiple of {} KV heads, got {}; {}",
          m_.num_kv_heads, l_.tp, suggest(l_.tp, m_.num_heads, [&](int32_t t) {
            return kv_heads_allow(m_.num_kv_heads, t) && m_.num_heads % t == 0;
          }));
    }
    if (m_.intermediate % l_.tp != 0) {
      add("[layout.tp] expected a divisor of the feed-forward width {}, got {}; {}",
          m_.intermediate, l_.tp,
          suggest(l_.tp, m_.num_heads, [&](int32_t t) { return m_.intermediate % t == 0; }));
    }
  }

  void context() {
    if (l_.cp % l_.ulysses != 0) {
      add("[layout.ulysses] expected a divisor of cp = {}, got {}; {}", l_.cp, l_.ulysses,
          suggest(l_.ulysses, l_.cp, [&](int32_t u) { return l_.cp % u == 0; }));
    }
    const int32_t heads = std::max(m_.num_heads / l_.tp, 1);
    if (heads % l_.ulysses != 0) {
      add("[layout.ulysses] expected a divisor of the {} heads of a rank, got {}; {}", heads,
          l_.ulysses, suggest(l_.ulysses, heads, [&](int32_t u) { return heads % u == 0; }));
    }
  }

  void experts() {
    if (m_.num_experts == 0) {
      if (l_.ep > 1) add("[layout.ep] expected 1 for a model without experts, got {}", l_.ep);
      if (l_.etp > 1) add("[layout.etp] expected 1 for a model without experts, got {}", l_.etp);
      return;
    }
    if (m_.num_experts % l_.ep != 0) {
      add("[layout.ep] expected a divisor of {} experts, got {}; {}", m_.num_experts, l_.ep,
          suggest(l_.ep, m_.num_experts, [&](int32_t e) { return m_.num_experts % e == 0; }));
    }
    if (m_.moe_intermediate > 0 && m_.moe_intermediate % l_.etp != 0) {
      add("[layout.etp] expected a divisor of the expert width {}, got {}; {}", m_.moe_intermediate,
          l_.etp, suggest(l_.etp, m_.moe_intermediate, [&](int32_t t) {
            return m_.moe_intermediate % t == 0;
          }));
    }
    const int64_t stage = static_cast<int64_t>(l_.tp) * l_.cp * l_.dp;
    if (stage % (static_cast<int64_t>(l_.ep) * l_.etp) != 0) {
      add("[layout.ep] expected ep * etp that divides the {} ranks of a stage (tp * cp * dp), got "
          "{} * {}; {}",
          stage, l_.ep, l_.etp, suggest(l_.ep, m_.num_experts, [&](int32_t e) {
            return stage % (static_cast<int64_t>(e) * l_.etp) == 0 && m_.num_experts % e == 0;
          }));
    }
  }

  const LayoutModel& m_;
  const Layout& l_;
  int32_t world_;
  std::vector<std::string> out_;
};

void check(const LayoutModel& m, int32_t world_size) {
  KEEL_REQUIRE(world_size >= 1, "[layout] expected world_size >= 1, got {}", world_size);
  KEEL_REQUIRE(m.num_layers >= 1 && m.num_heads >= 1 && m.num_kv_heads >= 1 &&
                   m.intermediate >= 1 && m.num_experts >= 0 && m.moe_intermediate >= 0,
               "[layout] expected a model with layers, heads, KV heads and width >= 1, got {}, {}, "
               "{}, {}",
               m.num_layers, m.num_heads, m.num_kv_heads, m.intermediate);
}

}  // namespace

std::vector<std::string> layout_faults(const LayoutModel& model, const Layout& layout,
                                       int32_t world_size) {
  check(model, world_size);
  return Rules(model, layout, world_size).faults();
}

std::vector<Layout> legal_layouts(const LayoutModel& model, int32_t world_size) {
  check(model, world_size);
  std::vector<Layout> out;
  for (const int32_t tp : divisors(world_size)) {
    for (const int32_t pp : divisors(world_size / tp)) {
      for (const int32_t cp : divisors(world_size / tp / pp)) {
        for (const int32_t ep : divisors(model.num_experts == 0 ? 1 : world_size / pp)) {
          for (const int32_t etp : divisors(model.num_experts == 0 ? 1 : world_size / pp / ep)) {
            const Layout layout{tp, pp, cp, 1, ep, etp, world_size / tp / pp / cp};
            if (Rules(model, layout, world_size).faults().empty()) out.push_back(layout);
          }
        }
      }
    }
  }
  return out;
}

}  // namespace keel::balance

#include "keel/balance/attention_partition.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "keel/balance/attention_blocks.h"
#include "keel/balance/partition_search.h"
#include "keel/base/error.h"

namespace keel::balance {
namespace {

constexpr int64_t kSearchEffort = 10000;

// Largest subtrees of the binary tree over pieces that make up the pieces first .. end - 1.
int64_t num_subtrees(int64_t first, int64_t end) {
  int64_t count = 0;
  while (first < end) {
    const int64_t aligned = first == 0 ? int64_t{1} << 40 : first & -first;
    const auto fits = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(end - first)));
    first += std::min(aligned, fits);
    ++count;
  }
  return count;
}

void check(const AttentionShape& shape, const AttentionOptions& options) {
  KEEL_REQUIRE(options.split_tokens >= 1 && options.tolerance >= 0,
               "[balance.attention] expected split_tokens >= 1 and tolerance >= 0, got {} and {}",
               options.split_tokens, options.tolerance);
  KEEL_REQUIRE(
      shape.kv_tile % options.split_tokens == 0 || options.split_tokens % shape.kv_tile == 0,
      "[balance.attention] expected split_tokens that divides kv_tile {} or is a multiple "
      "of it, got {}; try {}",
      shape.kv_tile, options.split_tokens, shape.kv_tile);
}

// Distance of the positions where a plan for this batch cuts rows.
int64_t cut_tokens(const AttentionBlocks& blocks, const AttentionShape& shape,
                   const AttentionOptions& options) {
  return blocks.uniform ? std::max<int64_t>(shape.kv_tile, options.split_tokens)
                        : options.split_tokens;
}

class Planner {
 public:
  Planner(const AttentionBlocks& blocks, const AttentionShape& shape, int32_t num_cores,
          const AttentionCost& cost, const AttentionOptions& options)
      : blocks_(blocks),
        shape_(shape),
        num_cores_(num_cores),
        cost_(cost),
        options_(options),
        cut_(cut_tokens(blocks, shape, options)) {
    share_ = (blocks.total_cost + num_cores - 1) / num_cores;
    int64_t piece = 0;
    for (const auto& tile : blocks.tiles) {
      piece = std::max(piece, tile.cost(0, std::min(cut_, tile.columns)));
    }
    out_.lower_bound = std::max(share_, piece);
    good_ = static_cast<int64_t>(static_cast<double>(out_.lower_bound) * (1 + options.tolerance));
  }

  AttentionPlan plan() {
    // A row is cut where it costs more than this part of a core's share; 0: never.
    for (const int64_t divisor : {0, 1, 2, 4, 8, 16}) {
      if (divisor > 0 && largest_row() <= share_ / divisor) continue;
      cut_rows(divisor > 0 ? share_ / divisor : blocks_.total_cost);
      if (offer(deal())) break;
      if (divisor == 1 && offer(wrap())) break;
    }
    return std::move(out_);
  }

 private:
  using Cores = std::vector<std::vector<int32_t>>;  // [core] indices into runs_

  int64_t largest_row() const {
    int64_t largest = 0;
    for (const auto& tile : blocks_.tiles) largest = std::max(largest, tile.whole());
    return largest;
  }

  void start() {
    runs_.clear();
    weights_.clear();
    num_partials_ = merge_cost_ = 0;
  }

  void add_run(const RowTile& tile, int32_t head, int64_t begin, int64_t end) {
    runs_.push_back({tile.request, head, tile.row, begin, end});
    weights_.push_back(tile.cost(begin, end));
    if (begin == 0 && end == tile.columns) return;
    const int64_t split = options_.split_tokens;
    const int64_t partials = num_subtrees(begin / split, (end + split - 1) / split);
    num_partials_ += partials;
    merge_cost_ += partials * tile.rows16 * cost_.merge;
  }

  void cut_rows(int64_t limit) {
    start();
    for (const auto& tile : blocks_.tiles) {
      const int64_t pieces = (tile.columns + cut_ - 1) / cut_;
      const int64_t parts =
          std::clamp<int64_t>((tile.whole() + limit - 1) / std::max<int64_t>(limit, 1), 1, pieces);
      for (int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        for (int64_t p = 0; p < parts; ++p) {
          add_run(tile, head, p * pieces / parts * cut_,
                  std::min((p + 1) * pieces / parts * cut_, tile.columns));
        }
      }
    }
  }

  Cores deal() const {
    return search_partition({.weights = weights_,
                             .tokens = {},
                             .num_parts = num_cores_,
                             .tolerance = options_.tolerance / 2,
                             .effort = kSearchEffort})
        .parts;
  }

  // Rows one after the other, each core up to the smallest limit with which the cores suffice.
  Cores wrap() {
    int64_t low = out_.lower_bound;
    int64_t high = low + low / 4 + 1;
    while (high < blocks_.total_cost && !fill(high)) high += high / 2;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (fill(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    KEEL_CHECK(fill(high), "{} cores up to {} do not hold {}", num_cores_, high,
               blocks_.total_cost);
    return filled_;
  }

  bool fill(int64_t limit) {
    start();
    filled_.assign(num_cores_, {});
    int32_t core = 0;
    int64_t room = limit;
    for (const auto& tile : blocks_.tiles) {
      for (int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        for (int64_t at = 0; at < tile.columns;) {
          int64_t end = tile.columns;
          if (tile.cost(at, end) > room) {  // the most pieces that fit
            int64_t low = at / cut_;
            int64_t high = (end - 1) / cut_;
            while (low < high) {
              const int64_t middle = (low + high + 1) / 2;
              if (tile.cost(at, middle * cut_) <= room) {
                low = middle;
              } else {
                high = middle - 1;
              }
            }
            end = low * cut_;
          }
          if (end > at) {
            filled_[core].push_back(static_cast<int32_t>(runs_.size()));
            add_run(tile, head, at, end);
            room -= weights_.back();
            at = end;
          }
          if (at < tile.columns) {
            if (++core == num_cores_) return false;
            room = limit;
          }
        }
      }
    }
    return true;
  }

  // Keeps the candidate if it is the best so far; true if it is good enough.
  bool offer(const Cores& cores) {
    std::vector<int64_t> loads;
    for (const auto& core : cores) {
      loads.push_back(0);
      for (const int32_t i : core) loads.back() += weights_[i];
    }
    const int64_t largest = *std::max_element(loads.begin(), loads.end());
    const int64_t score = largest + (merge_cost_ + num_cores_ - 1) / num_cores_;
    if (best_ < 0 || score < best_) {
      best_ = score;
      out_.loads = std::move(loads);
      out_.num_partials = num_partials_;
      out_.merge_cost = merge_cost_;
      out_.cores.assign(num_cores_, {});
      for (int32_t c = 0; c < num_cores_; ++c) {
        for (const int32_t i : cores[c]) out_.cores[c].push_back(runs_[i]);
      }
    }
    return largest <= good_;
  }

  const AttentionBlocks& blocks_;
  const AttentionShape& shape_;
  int32_t num_cores_;
  const AttentionCost& cost_;
  const AttentionOptions& options_;
  int64_t cut_;
  AttentionPlan out_;
  int64_t share_ = 0, good_ = 0, best_ = -1;
  std::vector<AttentionRun> runs_;  // of the candidate under way
  std::vector<int64_t> weights_;
  Cores filled_;
  int64_t num_partials_ = 0, merge_cost_ = 0;
};

// Empty if the runs cover 0 .. columns once.
bool covers(std::vector<std::pair<int64_t, int64_t>>& runs, int64_t columns) {
  std::sort(runs.begin(), runs.end());
  int64_t at = 0;
  for (const auto& [begin, end] : runs) {
    if (begin != at) return false;
    at = end;
  }
  return at == columns;
}

}  // namespace

int64_t AttentionPlan::max_load() const {
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

AttentionPlan plan_attention(std::span<const AttentionRequest> requests,
                             const AttentionShape& shape, int32_t num_cores,
                             const AttentionCost& cost, const AttentionOptions& options) {
  const auto blocks = attention_blocks(requests, shape, num_cores, cost, "balance.attention");
  check(shape, options);
  return Planner(blocks, shape, num_cores, cost, options).plan();
}

std::string validate(std::span<const AttentionRequest> requests, const AttentionShape& shape,
                     int32_t num_cores, const AttentionCost& cost, const AttentionOptions& options,
                     const AttentionPlan& plan) {
  const auto blocks = attention_blocks(requests, shape, num_cores, cost, "balance.attention");
  if (std::ssize(plan.cores) != num_cores || std::ssize(plan.loads) != num_cores) {
    return fmt::format("{} cores with {} loads, expected {}", plan.cores.size(), plan.loads.size(),
                       num_cores);
  }
  std::map<std::pair<int32_t, int32_t>, const RowTile*> tiles;
  for (const auto& tile : blocks.tiles) tiles[{tile.request, tile.row}] = &tile;
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<std::pair<int64_t, int64_t>>> runs;
  const int64_t cut = cut_tokens(blocks, shape, options);
  for (size_t c = 0; c < plan.cores.size(); ++c) {
    int64_t load = 0;
    for (const auto& run : plan.cores[c]) {
      const auto tile = tiles.find({run.request, run.row});
      if (tile == tiles.end() || run.kv_head < 0 || run.kv_head >= shape.num_kv_heads) {
        return fmt::format("no row {} of request {}, KV head {}", run.row, run.request,
                           run.kv_head);
      }
      const int64_t columns = tile->second->columns;
      if (run.kv_begin < 0 || run.kv_end <= run.kv_begin || run.kv_end > columns) {
        return fmt::format("row {} of request {} has no keys {} to {}", run.row, run.request,
                           run.kv_begin, run.kv_end);
      }
      if (run.kv_begin % cut != 0 || (run.kv_end % cut != 0 && run.kv_end != columns)) {
        return fmt::format("row {} of request {} is cut at {} to {}, not at multiples of {}",
                           run.row, run.request, run.kv_begin, run.kv_end, cut);
      }
      runs[{run.request, run.row, run.kv_head}].emplace_back(run.kv_begin, run.kv_end);
      load += tile->second->cost(run.kv_begin, run.kv_end);
    }
    if (load != plan.loads[c]) {
      return fmt::format("core {} states load {}, has {}", c, plan.loads[c], load);
    }
  }
  for (const auto& tile : blocks.tiles) {
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      if (!covers(runs[{tile.request, tile.row, head}], tile.columns)) {
        return fmt::format("row {} of request {}, KV head {} is not covered once", tile.row,
                           tile.request, head);
      }
    }
  }
  return "";
}

}  // namespace keel::balance

#include <gtest/gtest.h>

#include <map>

#include "keel/balance/published/context_groups.h"
#include "keel/balance/published/karmarkar_karp.h"
#include "keel/balance/test_cases.h"
#include "keel/base/error.h"

namespace keel::balance::published {
namespace {

// Runs one recorded call; false if the function is not of this folder.
bool reproduces(const OrderedJson& row) {
  const std::string fn = row["fn"];
  const auto ints = [&](const char* name) { return row[name].get<std::vector<int64_t>>(); };
  if (fn == "verl_kk_raw" || fn == "verl_kk" || fn == "verl_greedy") {
    const auto f = fn == "verl_kk"       ? verl_balanced_partitions
                   : fn == "verl_greedy" ? verl_greedy
                                         : karmarkar_karp;
    EXPECT_EQ(OrderedJson(f(ints("weights"), row["parts"], row["equal"])), row["result"]) << row;
  } else if (fn == "slime_dp_schedule") {
    EXPECT_EQ(OrderedJson(slime_schedule(ints("lengths"), row["cap"], row["ranks"],
                                         row["balance_data"], row["cost_c1"])),
              row["result"])
        << row;
  } else if (fn == "megatron_balanced_cp") {
    EXPECT_EQ(OrderedJson(megatron_balanced_cp(ints("lengths"), row["ranks"], row["max_per_rank"])),
              row["result"])
        << row;
  } else if (fn == "recipe_v1_groups") {
    if (row["result"] == "error") {
      EXPECT_THROW(recipe_groups(ints("lengths"), row["cp"]), Error) << row;
    } else {
      const auto groups = recipe_groups(ints("lengths"), row["cp"]);
      EXPECT_EQ(groups ? OrderedJson(*groups) : OrderedJson(nullptr), row["result"]) << row;
    }
  } else if (fn == "recipe_v1_pack") {
    EXPECT_EQ(OrderedJson(recipe_pack(ints("lengths"), row["cap"], row["buckets"])), row["result"])
        << row;
  } else {
    return false;
  }
  return true;
}

TEST(Published, EveryRecordedCallIsReproduced) {
  std::map<std::string, int> count;
  for (const OrderedJson& row : case_rows("exact_vectors")) {
    if (reproduces(row)) ++count[row["fn"]];
  }
  EXPECT_EQ(count.size(), 7u);
  for (const auto& [fn, n] : count) EXPECT_GE(n, 3) << fn;
}

TEST(Published, WrongInputIsNamed) {
  const std::vector<int64_t> three = {1, 2, 3};
  EXPECT_THROW(karmarkar_karp(three, 4, false), Error);
  EXPECT_THROW(karmarkar_karp(three, 2, true), Error);
  EXPECT_THROW(slime_schedule(three, 10, 4, false, 1), Error);
  EXPECT_THROW(megatron_balanced_cp(three, 0, 1), Error);
  const std::vector<int64_t> too_long = {100};
  EXPECT_THROW(megatron_balanced_cp(too_long, 2, 10), Error);
  EXPECT_THROW(recipe_groups({}, 2), Error);
  EXPECT_THROW(recipe_pack(three, 1, 0), Error);
}

}  // namespace
}  // namespace keel::balance::published

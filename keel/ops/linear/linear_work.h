// How much parallel work a matrix product is worth, and running the tasks of several products in
// one region.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "keel/base/thread_pool.h"
#include "keel/ops/linear/linear_split.h"

namespace keel::ops {

// Tasks for `multiply_adds` of work: 1 where waking the other threads would cost more than it
// saves (about 1 us), else enough that threads end together.
inline int64_t wanted_tasks(int64_t multiply_adds) {
  constexpr int64_t kSerialWork = 48 << 10;
  constexpr int64_t kTaskWork = 96 << 10;
  if (multiply_adds < kSerialWork) return 1;
  const int64_t threads = compute_pool().num_threads();
  return std::clamp(multiply_adds / kTaskWork, threads, 4 * threads);
}

// One product of a region and its tasks.
template <class Job>
struct WorkItem {
  Job job;
  TaskGrid grid;
  int64_t first_task = 0;
};

// Runs run(job, panels, rows) for every task of every item; in one region, or on this thread alone.
template <class Job, class Run>
void run_items(std::vector<WorkItem<Job>>& items, bool serial, Run&& run) {
  if (serial) {
    for (const auto& item : items)
      run(item.job, Range{0, item.grid.panels}, Range{0, item.job.rows});
    return;
  }
  int64_t tasks = 0;
  for (auto& item : items) {
    item.first_task = tasks;
    tasks += item.grid.size();
  }
  compute_pool().parallel_for(tasks, [&](int64_t i, int) {
    const auto after = std::upper_bound(
        items.begin(), items.end(), i,
        [](int64_t task, const WorkItem<Job>& item) { return task < item.first_task; });
    const WorkItem<Job>& item = *(after - 1);
    run(item.job, item.grid.panel_range(i - item.first_task),
        item.grid.row_range(i - item.first_task, item.job.rows));
  });
}

}  // namespace keel::ops

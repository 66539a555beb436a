#include "keel/parallel/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

namespace keel::parallel {

std::string describe_cpus() {
  // Not the host name: containers of different machines may share one.
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string text;
  in >> text;
  text += ' ';
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) text += CPU_ISSET(cpu, &set) ? '1' : '0';
  return text;
}

int cpu_share(std::span<const std::string> places, int rank) {
  const std::string& mine = places[rank];
  const size_t first = mine.find(' ') + 1;
  double share = 0;
  for (size_t i = first; i < mine.size(); ++i) {
    if (mine[i] != '1') continue;
    share += 1.0 / std::ranges::count_if(places, [&](const std::string& p) {
               return p.size() > i && p[i] == '1' && p.compare(0, first, mine, 0, first) == 0;
             });
  }
  return std::max(1, static_cast<int>(share + 1e-6));
}

}  // namespace keel::parallel

#include "keel/base/env.h"
#include "keel/base/error.h"
#include "keel/parallel/group.h"

namespace keel::parallel {

std::shared_ptr<Group> make_world() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "SLURM_NTASKS"}) {
    const auto value = env(name);
    KEEL_REQUIRE(!value || *value == "1",
                 "[{}] expected one process, got {}; this build has no process groups", name,
                 *value);
  }
  return Group::self();
}

}  // namespace keel::parallel

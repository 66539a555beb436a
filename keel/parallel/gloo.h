// A group over c10d's Gloo: processes connected pairwise by TCP.
#pragma once

#include <memory>

#include "keel/parallel/group.h"
#include "keel/parallel/launch.h"

namespace keel::parallel {

// Blocks until all ranks of the job are connected. launch.size >= 2.
std::shared_ptr<Group> make_gloo_group(const Launch& launch);

}  // namespace keel::parallel

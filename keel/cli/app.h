// The program: finds the verb, runs it, and turns every failure into one message and an exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace keel::cli {

// 0 done, 1 our bug, 2 wrong input, 3 resource (memory, disk), 4 a peer rank failed,
// 130 interrupted. Never throws.
int run_program(int argc, const char* const* argv);

// Runs `body` and maps what it throws to message (stderr) and exit code.
int run_guarded(const std::function<int()>& body);

}  // namespace keel::cli

// worker.py as a string, so that an installed program needs no other file.
#pragma once

namespace keel {

extern const char* const kWorkerScript;

}  // namespace keel

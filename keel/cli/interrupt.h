// Ctrl-C: the first one asks loops to stop at the next safe point, the second one ends the process.
#pragma once

namespace keel::cli {

// For SIGINT and SIGTERM; once, at program start.
void install_interrupt_handler();

// The user asked to stop. Loops poll it between steps, save their state and throw
// Error(kInterrupted), which becomes exit code 130. Any thread may ask.
bool interrupted();

}  // namespace keel::cli

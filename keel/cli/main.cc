#include "keel/cli/app.h"

int main(int argc, char** argv) { return keel::cli::run_program(argc, argv); }

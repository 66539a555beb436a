// What a verb needs.
#include "base_pch.h"

#include <CLI/CLI.hpp>

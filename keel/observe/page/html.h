// The report's page from a run's data. Pure.
#pragma once

#include <string>
#include <string_view>

#include "keel/observe/page/run_data.h"

namespace keel::page {

std::string render_html(const RunData& run);

// & < > " ' as entities; bytes that are not UTF-8 as U+FFFD.
std::string escape_html(std::string_view text);

// At most max_bytes of `text`, cut between characters, followed by how much is missing.
std::string shorten(const std::string& text, size_t max_bytes);

}  // namespace keel::page

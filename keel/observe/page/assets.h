// The files inside the report's page, embedded at build time (page/embed.cmake).
#pragma once

#include <string_view>

namespace keel::page {

extern const std::string_view kChartJs;  // Chart.js 3, MIT licence, with its notice
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;

}  // namespace keel::page

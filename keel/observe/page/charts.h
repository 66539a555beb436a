// Which curves a report shows, as data for page.js.
#pragma once

#include "keel/base/json.h"
#include "keel/observe/page/run_data.h"

namespace keel::page {

// {"steps": [...], "thinned": every k-th step is shown,
//  "charts": [{"title", "help", "kind": "line"|"stack"|"bars", "unit", "labels"?,
//              "series": [{"label", "values": [number|null, ...], "role"?}]}]}
// A chart none of whose metrics the run has is left out. role: "low" and "high" bound a band,
// "points" is a curve with few values.
OrderedJson chart_data(const RunData& run);

}  // namespace keel::page

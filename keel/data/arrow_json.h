// One Arrow value as JSON. Strings that are not UTF-8 give an issue; binary values become JSON
// binary; types without a JSON form (timestamps, decimals, maps) become text.
#pragma once

#include <arrow/api.h>

#include "keel/data/json_record.h"

namespace keel {

OrderedJson to_json(const arrow::Array& array, int64_t index, const std::string& path,
                    std::vector<Issue>& issues);

}  // namespace keel

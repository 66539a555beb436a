// JSON documents on disk, with errors that name the file and the place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "keel/base/json.h"

namespace keel {

// The document in `path`. Throws FileError: "missing_file"; "empty_file"; "json_syntax" (line and
// column, or nesting above 200); "too_large" above max_bytes; "lfs_pointer". The text must be UTF-8
// (a leading byte-order mark is ignored).
Json read_json_file(const std::string& path, uint64_t max_bytes = uint64_t{256} << 20);
// The same with keys in file order.
OrderedJson read_ordered_json_file(const std::string& path,
                                   uint64_t max_bytes = uint64_t{256} << 20);

// What `text` nests deeper than Keel reads ("[[[[..."): such a document could exhaust the stack.
bool nests_too_deep(std::string_view text);

// Pretty-printed, written atomically, non-ASCII kept. Throws FileError "bad_text" if a text is not
// UTF-8.
void write_json_file(const std::string& path, const OrderedJson& document);

}  // namespace keel

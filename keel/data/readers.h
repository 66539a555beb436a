// Turns a data file into JSON records. The format is decided by content; a name that claims another
// format is an error, because other tools would go by the name.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "keel/data/json_record.h"

namespace keel {

struct ReadLimits {
  int64_t max_row_bytes = int64_t{16} << 20;  // longer text records are not read: too_large
  int max_depth = 100;                        // nested levels in one record
};

struct Record {
  int64_t row = 0;    // 0-based; blank lines are no records
  int64_t line = -1;  // 1-based first line of the record; -1 in parquet
  OrderedJson value;
  std::vector<Issue> issues;
  bool usable = false;                             // false: value is not there, issues say why
  const std::set<std::string>* columns = nullptr;  // parquet: the file's columns
};

using RecordSink = std::function<void(Record&&)>;

// Reads all records of one file in order; problems of the file itself go to `log`.
// Does not throw for anything that is wrong with the file.
void read_records(const std::string& path, const ReadLimits& limits, FindingLog& log,
                  const RecordSink& sink);

// The two readers behind it (the file exists and its magic bytes fit).
void read_text(const std::string& path, bool gzip, const ReadLimits& limits, FindingLog& log,
               const RecordSink& sink);
void read_parquet(const std::string& path, FindingLog& log, const RecordSink& sink);

}  // namespace keel

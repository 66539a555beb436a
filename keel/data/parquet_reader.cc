// Parquet through Arrow's reader, a row group and a small batch at a time. The footer is an
// unproven claim: its counts are compared before anything is allocated by them.
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include "keel/data/arrow_json.h"
#include "keel/data/readers.h"

namespace keel {
namespace {

constexpr int64_t kBatchRows = 256;

// Message of the first failing status; "" while all is well.
using Fault = std::pair<std::string, std::string>;  // kind, message

Fault corrupt(const arrow::Status& s) { return {"corrupt", printable(s.message(), 200)}; }

Fault check_counts(const parquet::FileMetaData& meta) {
  int64_t rows = 0;
  for (int g = 0; g < meta.num_row_groups(); ++g) {
    const int64_t n = meta.RowGroup(g)->num_rows();
    if (n < 0) return {"metadata_lie", fmt::format("row group {} claims {} rows", g, n)};
    rows += n;
  }
  if (rows != meta.num_rows()) {
    return {"metadata_lie", fmt::format("the footer claims {} rows, the row groups hold {}",
                                        meta.num_rows(), rows)};
  }
  if (rows == 0 || meta.num_columns() == 0) return {"no_rows", "has no records"};
  return {};
}

class ParquetReader {
 public:
  ParquetReader(const std::string& path, FindingLog& log, const RecordSink& sink)
      : path_(path), log_(log), sink_(sink) {}

  void run() {
    Fault fault;
    try {
      fault = read();
    } catch (const std::exception& e) {  // parquet::ParquetException, thrift errors, bad_alloc
      fault = {"corrupt", printable(e.what(), 200)};
    }
    if (!fault.first.empty()) {
      log_.add({fault.first, FindingLevel::kError, path_, -1, -1, field_, fault.second, "", 0});
    }
  }

 private:
  Fault read() {
    auto file = arrow::io::ReadableFile::Open(path_);
    if (!file.ok()) return corrupt(file.status());
    auto raw = parquet::ParquetFileReader::Open(*file);
    const auto meta = raw->metadata();
    if (auto fault = check_counts(*meta); !fault.first.empty()) return fault;
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(kBatchRows);
    properties.set_use_threads(false);
    std::unique_ptr<parquet::arrow::FileReader> reader;
    auto made =
        parquet::arrow::FileReader::Make(arrow::default_memory_pool(), std::move(raw), properties);
    if (!made.ok()) return corrupt(made.status());
    reader = std::move(*made);
    std::shared_ptr<arrow::Schema> schema;
    if (auto s = reader->GetSchema(&schema); !s.ok()) return corrupt(s);
    for (const auto& f : schema->fields()) {
      if (!columns_.insert(f->name()).second) {
        field_ = f->name();
        return {"duplicate_key", "two columns have this name"};
      }
    }
    for (int g = 0; g < meta->num_row_groups(); ++g) {
      if (auto fault = read_group(*reader, g, meta->RowGroup(g)->num_rows()); !fault.first.empty())
        return fault;
    }
    return {};
  }

  Fault read_group(parquet::arrow::FileReader& reader, int group, int64_t claimed) {
    auto made = reader.GetRecordBatchReader(std::vector<int>{group});
    if (!made.ok()) return corrupt(made.status());
    int64_t rows = 0;
    for (;;) {
      std::shared_ptr<arrow::RecordBatch> batch;
      if (auto s = (*made)->ReadNext(&batch); !s.ok()) {
        field_ = first_bad_column(reader, group);
        return corrupt(s);
      }
      if (!batch) break;
      if (auto s = batch->Validate(); !s.ok()) return corrupt(s);
      rows += batch->num_rows();
      if (rows > claimed) break;
      emit(*batch);
    }
    if (rows == claimed) return {};
    return {"metadata_lie",
            fmt::format("row group {} claims {} rows, its pages hold {}", group, claimed, rows)};
  }

  // The first column of the row group that cannot be read alone, or "".
  std::string first_bad_column(parquet::arrow::FileReader& reader, int group) {
    std::shared_ptr<arrow::Schema> schema;
    if (!reader.GetSchema(&schema).ok()) return "";
    for (int c = 0; c < schema->num_fields(); ++c) {
      std::shared_ptr<arrow::ChunkedArray> column;
      if (!reader.RowGroup(group)->Column(c)->Read(&column).ok()) return schema->field(c)->name();
    }
    return "";
  }

  void emit(const arrow::RecordBatch& batch) {
    for (int64_t i = 0; i < batch.num_rows(); ++i) {
      Record record;
      record.row = row_++;
      record.columns = &columns_;
      record.value = OrderedJson::object();
      for (int c = 0; c < batch.num_columns(); ++c) {
        const auto& name = batch.schema()->field(c)->name();
        record.value[name] = to_json(*batch.column(c), i, name, record.issues);
      }
      record.usable = record.issues.empty();
      sink_(std::move(record));
    }
  }

  const std::string& path_;
  FindingLog& log_;
  const RecordSink& sink_;
  std::set<std::string> columns_;
  std::string field_;
  int64_t row_ = 0;
};

}  // namespace

void read_parquet(const std::string& path, FindingLog& log, const RecordSink& sink) {
  ParquetReader(path, log, sink).run();
}

}  // namespace keel

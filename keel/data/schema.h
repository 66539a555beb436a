// The row schemas of each task: which keys a row has, what they mean, and what is wrong with it.
#pragma once

#include "keel/data/row_report.h"

namespace keel {

// What the first usable rows of a run have shown; later rows are held to it.
struct SchemaState {
  std::string prompt_form;    // rl: "a string" or "a message list"
  bool file_is_verl = false;  // rl, per file
  std::string file_schema;    // sft, per file: messages, sharegpt, alpaca, prompt, text
};

// Each fills `out` and returns true if the row can be used.
bool read_rl_row(const OrderedJson& row, const DataOptions& options, SchemaState& state,
                 RowReport& report, Row& out);
bool read_sft_row(const OrderedJson& row, const DataOptions& options, SchemaState& state,
                  RowReport& report, Row& out);
bool read_preference_row(const OrderedJson& row, const DataOptions& options, RowReport& report,
                         Row& out);
bool read_kto_row(const OrderedJson& row, const DataOptions& options, RowReport& report, Row& out);

// Copies the columns not named in `used` into out.extra, and `tools` into out.tools.
void keep_extra(const OrderedJson& row, std::initializer_list<std::string> used, Row& out);

}  // namespace keel

// Data files for training: parquet (verl rows), JSON and JSON lines (TRL, verl, ShareGPT, Alpaca,
// OpenAI rows), also gzipped. The schema is recognised by the rows' keys. All problems of all rows
// are found in one pass, before a model is loaded.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/data/finding.h"

namespace keel {

enum class DataTask { kRl, kSft, kDpo, kRewardModel, kKto };

// "rl", "sft", "dpo", "rm", "kto"; throws keel::Error for another word.
DataTask parse_data_task(const std::string& name);

struct Message {
  std::string role;  // system, developer, user, assistant, tool, function
  std::string content;
  bool trained = false;  // an assistant turn that loss falls on (weight is not 0)
  Json extra;            // tool_calls, tool_call_id, name, reasoning_content ...; null if none
};

// {"role", "content", extra...}, the form that chat templates take.
Json to_json(const Message& m);
Json to_json(const std::vector<Message>& messages);

// Plain text or a conversation.
struct Content {
  std::string text;
  std::vector<Message> messages;
  bool is_chat() const { return !messages.empty(); }
  bool empty() const { return text.empty() && messages.empty(); }
};

// One example. Prompt and completion joined are the whole text or conversation.
struct Row {
  Content prompt;      // what the model is given
  Content completion;  // sft, kto: what it shall say; multi-turn rows begin with the first answer
  Content chosen, rejected;  // dpo, rm: without the prompt
  bool label = false;        // kto
  std::string data_source;   // names the reward rule (verl); "" if there is none
  std::string ground_truth;  // "" if there is none; a number or list is kept as JSON text
  Json tools;                // tool definitions, or null
  Json extra;                // all columns that have no meaning above, e.g. extra_info
  int file = 0;              // index into Dataset::files
  int64_t row = 0;           // 0-based record number in the file
  int64_t line = -1;         // 1-based line; -1 in parquet
};

// What happens with a prompt above max_prompt_tokens.
enum class Overlong { kError, kDrop };

struct DataOptions {
  DataTask task = DataTask::kRl;
  std::string prompt_key = "prompt";
  // The column with the reference answer that every rl row must have. "": verl's
  // reward_model.ground_truth, else the first of ground_truth, answer, solution, target, if any.
  std::string ground_truth_key;
  // Whether a reward is known for a verl data_source. Not set: not checked.
  std::function<bool(const std::string&)> knows_data_source;
  // Tokens of the row's prompt as it will be fed. Not set: lengths are not checked.
  std::function<int64_t(const Row&)> count_prompt_tokens;
  int64_t max_prompt_tokens = 0;  // 0 = no limit
  Overlong overlong = Overlong::kError;
  int64_t max_rows = 0;  // 0 = all; else a subset that depends on `seed` alone, in file order
  uint64_t seed = 0;
  int64_t max_row_bytes = int64_t{16} << 20;  // longer text records are refused
  int max_findings_per_class = 5;
};

struct Dataset {
  std::vector<std::string> files;
  std::vector<Row> rows;
  std::vector<DataFinding> warnings;
  int64_t num_dropped = 0;   // overlong prompts left out
  uint64_t fingerprint = 0;  // of the rows' contents in order; differs if a file was edited
};

// Reads all files. Throws keel::Error with a summary if anything is wrong that training would
// trip over (any finding of level kError).
Dataset load_dataset(const std::vector<std::string>& files, const DataOptions& options);

// All findings, without keeping the rows. Never throws for what is in the files; time and memory
// are bounded by the files' sizes.
std::vector<DataFinding> check_dataset(const std::vector<std::string>& files,
                                       const DataOptions& options);

// Moves `fraction` of the rows (at least one row if fraction > 0 and there are two) to the second
// data set; which ones depends on the seed alone.
std::pair<Dataset, Dataset> split_dataset(Dataset all, double fraction, uint64_t seed);

}  // namespace keel

#include "keel/spec/weight_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "keel/io/json_file.h"
#include "keel/spec/fields.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";

// Also true for a dangling link.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

bool leaves_folder(const std::string& name) {
  const fs::path path(name);
  return name.empty() || path.is_absolute() ||
         std::ranges::any_of(path, [](const fs::path& part) { return part == ".."; });
}

class Opener {
 public:
  Opener(const std::string& folder, std::vector<Finding>& findings)
      : folder_(folder), findings_(findings) {}

  WeightFiles take() {
    out_.complete = !failed_ && !out_.files.empty();
    return std::move(out_);
  }

  void add(Level level, const char* kind, const std::string& file, const std::string& item,
           const std::string& message) {
    findings_.push_back({level, kind, file, item, message});
    if (level == Level::kError) failed_ = true;
  }

  void fail(const FileError& e, const std::string& file) {
    findings_.push_back(finding_of(e, file));
    failed_ = true;
  }

  // prefer: shard that the index names for each tensor (may be empty).
  void open(const std::string& name, const std::map<std::string, std::string>& prefer) {
    const fs::path path = fs::path(folder_) / name;
    if (!fs::exists(path)) {
      std::error_code ignored;
      const std::string got =
          is_there(path) ? "a link to a missing file " + fs::read_symlink(path, ignored).string()
                         : "nothing";
      add(Level::kError, prefer.empty() ? "missing_file" : "missing_shard", name, "",
          "expected the weights, got " + got + "; try: download the model again");
      return;
    }
    try {
      out_.files.push_back(std::make_unique<SafetensorsFile>(path.string()));
    } catch (const FileError& e) {
      fail(e, name);
      return;
    }
    const size_t file = out_.files.size() - 1;
    for (const auto& t : out_.files[file]->tensors()) {
      const auto wanted = prefer.find(t.name);
      const auto [it, fresh] = out_.tensors.try_emplace(t.name, StoredTensor{file, &t});
      if (fresh) continue;
      const bool named = wanted != prefer.end();
      add(named ? Level::kWarn : Level::kError, "duplicate_tensor", name, t.name,
          named ? "expected once, got it in several shards; the one of the index is used"
                : "expected once, got it in several files");
      if (named && wanted->second == name) it->second = {file, &t};
    }
    names_.push_back(name);
  }

  void open_index();
  void open_without_index();

 private:
  std::optional<std::map<std::string, std::string>> read_map(const Json& index);
  void compare(const Json& index, const std::map<std::string, std::string>& map);

  std::string folder_;
  std::vector<Finding>& findings_;
  WeightFiles out_;
  std::vector<std::string> names_;  // of out_.files
  bool failed_ = false;
};

std::optional<std::map<std::string, std::string>> Opener::read_map(const Json& index) {
  std::map<std::string, std::string> map;
  const auto it = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || it == index.end() || !it->is_object() || it->empty()) {
    add(Level::kError, "bad_index", kIndex, "weight_map",
        "expected an object {tensor: file}, got " +
            std::string(index.is_object() && it != index.end() ? it->type_name() : "nothing"));
    return std::nullopt;
  }
  for (const auto& [tensor, file] : it->items()) {
    if (!file.is_string()) {
      add(Level::kError, "bad_index", kIndex, tensor, "expected a file name, got " + brief(file));
      return std::nullopt;
    }
    map[tensor] = file.get<std::string>();
    if (leaves_folder(map[tensor])) {
      add(Level::kError, "path_traversal", kIndex, tensor,
          "expected a file name inside the folder, got " + brief(file));
      return std::nullopt;
    }
  }
  return map;
}

void Opener::compare(const Json& index, const std::map<std::string, std::string>& map) {
  uint64_t total = 0;
  for (const auto& [name, stored] : out_.tensors) {
    total += stored.tensor->end - stored.tensor->begin;
    if (!map.contains(name)) {
      add(Level::kWarn, "index_mismatch", kIndex, name,
          "expected every stored tensor in the index, got it only in " + names_[stored.file]);
    }
  }
  for (const auto& [name, file] : map) {
    const auto it = out_.tensors.find(name);
    if (it == out_.tensors.end()) {
      add(Level::kWarn, "index_mismatch", kIndex, name, "expected it in " + file + ", got nothing");
    } else if (names_[it->second.file] != file) {
      add(Level::kError, "index_mismatch", kIndex, name,
          "expected it in " + file + ", got it in " + names_[it->second.file]);
    }
  }
  const auto metadata = index.find("metadata");
  if (metadata == index.end() || !metadata->is_object()) return;
  const auto size = metadata->find("total_size");
  if (size == metadata->end()) return;
  // Some writers do not count a stored copy of a tied head.
  const auto head = out_.tensors.find("lm_head.weight");
  const uint64_t head_bytes =
      head == out_.tensors.end() ? 0 : head->second.tensor->end - head->second.tensor->begin;
  const double stated = size->is_number() ? size->get<double>() : -1;
  if (stated == double(total) || stated == double(total - head_bytes)) return;
  add(Level::kWarn, "index_mismatch", kIndex, "metadata.total_size",
      fmt::format("expected {} bytes as stored, got {}", total, brief(*size)));
}

void Opener::open_index() {
  Json index;
  try {
    index = read_json_file(folder_ + "/" + kIndex);
  } catch (const FileError& e) {
    fail(e, kIndex);
    return;
  }
  const auto map = read_map(index);
  if (!map) return;
  if (is_there(fs::path(folder_) / kSingle) &&
      std::ranges::none_of(*map, [](const auto& entry) { return entry.second == kSingle; })) {
    add(Level::kWarn, "conflict", "", "",
        fmt::format("expected {} or {}, got both; the index and its shards are used", kSingle,
                    kIndex));
  }
  std::set<std::string> shards;
  for (const auto& [tensor, file] : *map) shards.insert(file);
  for (const auto& shard : shards) open(shard, *map);
  if (!failed_) compare(index, *map);
}

void Opener::open_without_index() {
  std::vector<std::string> tensors, pickles;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const auto name = entry.path().filename().string();
    const auto extension = entry.path().extension();
    if (extension == ".safetensors") tensors.push_back(name);
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") pickles.push_back(name);
  }
  std::ranges::sort(tensors);
  std::ranges::sort(pickles);
  if (is_there(fs::path(folder_) / kSingle)) tensors = {kSingle};
  for (const auto& name : tensors) open(name, {});
  if (!tensors.empty()) return;
  if (!pickles.empty()) {
    add(Level::kError, "pickle_only", pickles[0], "",
        "expected safetensors, got only pickle files, which can run code and are never opened; "
        "try: load and save the model with transformers (save_pretrained)");
  } else {
    add(Level::kError, "missing_file", "", "",
        fmt::format("expected {} or {}, got no weights; try: download the model again", kSingle,
                    kIndex));
  }
}

}  // namespace

WeightFiles open_weight_files(const std::string& folder, std::vector<Finding>& findings) {
  Opener opener(folder, findings);
  if (is_there(fs::path(folder) / kIndex)) {
    opener.open_index();
  } else {
    opener.open_without_index();
  }
  return opener.take();
}

}  // namespace keel

#include "keel/train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "keel/base/error.h"
#include "keel/io/atomic_file.h"
#include "keel/io/checksum.h"
#include "keel/io/json_file.h"
#include "keel/io/safetensors.h"

namespace keel::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTensors = "state.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kManifest = "manifest.json";

struct Entry {
  std::string name;
  at::Tensor tensor;
};

std::vector<Entry> entries(AdamW& optimizer) {
  std::vector<Entry> out;
  for (AdamW::Slot& s : optimizer.slots()) {
    out.push_back({s.parameter->name() + ".master", s.parameter->master()});
    out.push_back({s.parameter->name() + ".m", s.m});
    out.push_back({s.parameter->name() + ".v", s.v});
  }
  return out;
}

std::span<std::byte> bytes_of(const at::Tensor& t) {
  return {static_cast<std::byte*>(t.data_ptr()), static_cast<size_t>(t.nbytes())};
}

// What the manifest says of a file. Known from writing it: reading a state of gigabytes again
// would take time, and its mapped pages would count as the program's memory.
Json manifest_entry(uint64_t num_bytes, uint64_t sum) {
  return {{"bytes", num_bytes}, {"xxh3", fmt::format("{:016x}", sum)}};
}

Json write_tensors(const std::string& path, AdamW& optimizer) {
  const auto list = entries(optimizer);
  std::vector<SafetensorsDecl> decls;
  for (const Entry& e : list) decls.push_back({e.name, keel::DType::kF32, {e.tensor.numel()}});
  SafetensorsWriter writer(path, std::move(decls), {{"format", "keel-packed"}});
  for (const Entry& e : list) writer.write(e.name, bytes_of(e.tensor));
  writer.commit();
  return manifest_entry(writer.num_bytes(), writer.checksum());
}

Json write_state(const std::string& path, const Json& state) {
  const std::string text = state.dump(1) + "\n";
  write_file_atomic(path, text);
  return manifest_entry(text.size(), checksum(std::as_bytes(std::span(text))));
}

std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with("step_") || name.find_first_not_of("0123456789", 5) != std::string::npos ||
      name.size() < 6) {
    return std::nullopt;
  }
  return std::stoll(name.substr(5));
}

std::optional<Json> read_manifest(const fs::path& folder) {
  std::ifstream in(folder / kManifest);
  if (!in) return std::nullopt;
  auto manifest = Json::parse(in, nullptr, false);
  if (!manifest.is_object() || !manifest.contains("files")) return std::nullopt;
  return manifest;
}

bool is_complete(const fs::path& folder) {
  const auto manifest = read_manifest(folder);
  if (!manifest) return false;
  for (const auto& [name, info] : (*manifest)["files"].items()) {
    std::error_code error;
    if (fs::file_size(folder / name, error) != info.value("bytes", uint64_t{0}) || error)
      return false;
  }
  return true;
}

}  // namespace

std::string checkpoint_dir(const std::string& root, int64_t step) {
  return root + "/step_" + std::to_string(step);
}

void save_checkpoint(const std::string& root, int64_t step, AdamW& optimizer, const Json& state) {
  const fs::path folder = checkpoint_dir(root, step), temporary = folder.string() + ".tmp";
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error)
    throw Error(ErrorKind::kResource,
                fmt::format("[{}] cannot create: {}", temporary.string(), error.message()));
  try {
    Json files;
    files[kTensors] = write_tensors(temporary / kTensors, optimizer);
    Json document = state;
    document["optimizer"] = {{"num_updates", optimizer.num_updates()},
                             {"num_skipped", optimizer.num_skipped()}};
    files[kState] = write_state(temporary / kState, document);
    write_file_atomic(temporary / kManifest, Json{{"step", step}, {"files", files}}.dump(1) + "\n");
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
  fs::remove_all(folder, error);  // an older, same-numbered one (a run that was rewound)
  fs::rename(temporary, folder);
  sync_folder(root);
}

std::vector<int64_t> list_checkpoints(const std::string& root) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const auto step = step_of(entry.path());
    if (step && is_complete(entry.path())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Json load_checkpoint(const std::string& root, int64_t step, AdamW& optimizer) {
  const fs::path folder = checkpoint_dir(root, step);
  const auto manifest = read_manifest(folder);
  KEEL_REQUIRE(manifest.has_value(),
               "[{}] expected a complete checkpoint, found no manifest; try an older step",
               folder.string());
  for (const auto& [name, info] : (*manifest)["files"].items()) {
    const auto sum = fmt::format("{:016x}", checksum_file(folder / name));
    KEEL_REQUIRE(sum == info.value("xxh3", ""),
                 "[{}/{}] checksum differs from the manifest; try an older step", folder.string(),
                 name);
  }
  const SafetensorsFile file((folder / kTensors).string());
  for (const Entry& e : entries(optimizer)) {
    const auto* stored = file.find(e.name);
    KEEL_REQUIRE(
        stored != nullptr && stored->shape == std::vector<int64_t>{e.tensor.numel()},
        "[{}] expected tensor {} with {} elements; the checkpoint belongs to another model",
        folder.string(), e.name, e.tensor.numel());
    const auto bytes = file.bytes(*stored);
    std::memcpy(e.tensor.data_ptr(), bytes.data(), bytes.size());
    file.drop_pages(*stored);
  }
  std::ifstream in(folder / kState);
  Json state = Json::parse(in);
  optimizer.set_counters(state["optimizer"]["num_updates"], state["optimizer"]["num_skipped"]);
  return state;
}

void prune_checkpoints(const std::string& root, int64_t keep, const std::vector<int64_t>& pinned) {
  const auto steps = list_checkpoints(root);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const auto step = step_of(entry.path());
    const bool stale = entry.path().extension() == ".tmp" || (step && !is_complete(entry.path()));
    const bool newest = step && std::count_if(steps.begin(), steps.end(),
                                              [&](int64_t s) { return s > *step; }) < keep;
    const bool keep_it =
        step && (newest || std::find(pinned.begin(), pinned.end(), *step) != pinned.end());
    if (stale || (step && !keep_it)) fs::remove_all(entry.path(), error);
  }
}

}  // namespace keel::train

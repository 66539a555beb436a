#include "keel/spec/model_name.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <vector>

#include "keel/base/env.h"
#include "keel/io/file_error.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

// Letters, digits, "-", "_", "." on both sides of one slash.
bool is_hub_name(const std::string& name) {
  const auto slash = name.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == name.size()) return false;
  if (name[0] == '.' || name[0] == '~' || name.find('/', slash + 1) != std::string::npos) {
    return false;
  }
  return std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

fs::path hub_cache() {
  if (const auto p = env("HF_HUB_CACHE")) return *p;
  if (const auto p = env("HF_HOME")) return fs::path(*p) / "hub";
  if (const auto p = env("XDG_CACHE_HOME")) return fs::path(*p) / "huggingface" / "hub";
  return fs::path(env("HOME").value_or("/")) / ".cache" / "huggingface" / "hub";
}

// The snapshot that refs/main names, or the only one; empty if there is none.
fs::path find_snapshot(const fs::path& repository) {
  std::string revision;
  std::ifstream(repository / "refs" / "main") >> revision;
  std::error_code ignored;
  const auto snapshots = repository / "snapshots";
  if (!revision.empty() && fs::is_directory(snapshots / revision, ignored)) {
    return snapshots / revision;
  }
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(snapshots, ignored)) all.push_back(entry.path());
  return revision.empty() && all.size() == 1 ? all[0] : fs::path();
}

}  // namespace

std::string resolve_model(const std::string& name) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) return name;
  if (fs::exists(name, ignored)) {
    throw_file_error("wrong_type", name,
                     "expected a model folder, got a file; try: keel convert for GGUF files");
  }
  if (!is_hub_name(name)) {
    throw_file_error("missing_file", name,
                     "expected a model folder or org/name in the Hugging Face cache, got neither; "
                     "try: check the path");
  }
  std::string folder = "models--" + name;
  folder.replace(folder.find('/'), 1, "--");
  const auto cache = hub_cache();
  const auto snapshot = find_snapshot(cache / folder);
  if (!snapshot.empty()) return snapshot.string();
  throw_file_error("missing_file", name,
                   "expected a folder of that name or a model in the Hugging Face cache {}, got "
                   "neither; try: hf download {}",
                   cache.string(), name);
}

}  // namespace keel

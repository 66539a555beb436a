#include "keel/cli/model_path.h"

#include <algorithm>
#include <filesystem>

#include "keel/base/env.h"

namespace keel::cli {

namespace fs = std::filesystem;

std::string hf_cache_dir() {
  if (const auto cache = env("HF_HUB_CACHE")) return *cache;
  if (const auto home = env("HF_HOME")) return *home + "/hub";
  return env("HOME").value_or(".") + "/.cache/huggingface/hub";
}

bool is_hub_name(const std::string& name) {
  return std::count(name.begin(), name.end(), '/') == 1 && name.front() != '/' &&
         name.front() != '.' && name.front() != '~' && name.back() != '/';
}

std::optional<std::string> find_model(const std::string& name) {
  std::error_code ec;
  if (name.empty()) return std::nullopt;
  if (fs::exists(name, ec)) return name;
  if (!is_hub_name(name)) return std::nullopt;
  const size_t slash = name.find('/');
  const fs::path snapshots = fs::path(hf_cache_dir()) /
                             ("models--" + name.substr(0, slash) + "--" + name.substr(slash + 1)) /
                             "snapshots";
  std::optional<std::string> best;
  fs::file_time_type best_time;
  for (fs::directory_iterator it(snapshots, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code missing;
    if (!fs::exists(it->path() / "config.json", missing)) continue;
    const auto time = fs::last_write_time(it->path(), missing);
    if (!best || time > best_time || (time == best_time && it->path().string() < *best)) {
      best = it->path().string();
      best_time = time;
    }
  }
  return best;
}

}  // namespace keel::cli

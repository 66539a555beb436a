#include "keel/cli/doctor.h"

#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "keel/base/cpu.h"
#include "keel/base/json.h"
#include "keel/cli/model_path.h"
#include "keel/ops/isa.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;
using State = Fact::State;

constexpr double kGiB = 1 << 30;

// A number from a file such as /proc/meminfo ("MemTotal:  16 kB") or a cgroup limit; -1 if absent.
int64_t number_in(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string word; in >> word;) {
    int64_t value = -1;
    if (key.empty()) return word == "max" ? -1 : std::stoll(word);
    if (word == key && in >> value) return value;
  }
  return -1;
}

Fact cpu_fact() {
  const unsigned all = std::thread::hardware_concurrency();
  const int allowed = num_allowed_cpus();
  return {State::kGood, "processor",
          fmt::format("{}, {} of {} CPUs usable", cpu_model_name(), allowed, all), ""};
}

Fact isa_fact() {
  const auto names = ops::supported_isas();
  const std::string used = ops::kernel_isa();
  const bool fused = used != "SSE4" && used != "SCALAR";
  return {fused ? State::kGood : State::kWarning, "kernels",
          fmt::format("{} in use; this machine runs {}", used, fmt::join(names, ", ")),
          fused ? "" : "results differ from machines with AVX2, AVX-512 or NEON, and speed is low"};
}

Fact memory_fact() {
  const int64_t usable = usable_memory_bytes();
  const int64_t free_kib = number_in("/proc/meminfo", "MemAvailable:");
  const bool small = usable < 4 * kGiB;
  return {small ? State::kWarning : State::kGood, "memory",
          fmt::format("{} usable, {} available now", format_bytes(static_cast<double>(usable)),
                      format_bytes(static_cast<double>(std::max<int64_t>(free_kib, 0)) * 1024)),
          small ? "the demo needs 4 GiB" : ""};
}

// Training holds weights, gradients and two moments in f32: 16 bytes a parameter.
Fact size_fact() {
  const double parameters = static_cast<double>(usable_memory_bytes()) * 0.7 / 16;
  return {State::kGood, "training",
          fmt::format("models up to about {:.1f} billion parameters (f32 master weights)",
                      parameters / 1e9),
          ""};
}

Fact disk_fact(const std::string& run_dir) {
  std::error_code ec;
  fs::path at = fs::absolute(run_dir, ec);
  while (!fs::exists(at, ec) && at.has_parent_path() && at != at.parent_path()) {
    at = at.parent_path();
  }
  const fs::space_info space = fs::space(at, ec);
  if (ec) return {State::kBad, "disk", run_dir + ": " + ec.message(), "another trainer.run_dir"};
  const double free_bytes = static_cast<double>(space.available);
  if (access(at.c_str(), W_OK) != 0) {
    return {State::kBad, "disk", at.string() + " is not writable", "another trainer.run_dir"};
  }
  const bool small = free_bytes < 5 * kGiB;
  return {small ? State::kWarning : State::kGood, "disk",
          fmt::format("{} free under {}", format_bytes(free_bytes), at.string()),
          small ? "a checkpoint takes 12 bytes a parameter" : ""};
}

Fact library_fact() {
  return {State::kGood, "libraries",
          fmt::format("libtorch {}, nlohmann-json {}.{}.{}, zlib {}, zstd {}", TORCH_VERSION,
                      NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                      NLOHMANN_JSON_VERSION_PATCH, zlibVersion(), ZSTD_versionString()),
          ""};
}

Fact python_fact() {
  const std::string version = python_version();
  if (version.empty()) {
    return {State::kWarning, "python3", "not found",
            "install python3 if rewards are written in Python; built-in rules work without it"};
  }
  return {State::kGood, "python3", version + ", so rewards can be written in Python", ""};
}

Fact cache_fact() {
  const std::string cache = hf_cache_dir();
  std::error_code ec;
  std::vector<std::string> models;
  for (fs::directory_iterator it(cache, ec), end; !ec && it != end; it.increment(ec)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with("models--")) continue;
    name.erase(0, 8);
    if (const size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
    if (find_model(name)) models.push_back(name);
  }
  std::sort(models.begin(), models.end());
  return {
      State::kGood, "model cache",
      cache + (models.empty() ? ": no models" : fmt::format(": {}", fmt::join(models, ", "))),
      models.empty() ? "a model folder as model.path, or 'huggingface-cli download org/name'" : ""};
}

}  // namespace

int64_t usable_memory_bytes() {
  const int64_t total = std::max<int64_t>(number_in("/proc/meminfo", "MemTotal:"), 0) * 1024;
  for (const char* limit :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const int64_t bytes = number_in(limit, "");
    if (bytes > 0 && bytes < total) return bytes;
  }
  return total;
}

std::string python_version() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
      popen("python3 --version 2>/dev/null", "r"), pclose);
  char line[64] = {};
  if (!pipe || !std::fgets(line, sizeof(line), pipe.get())) return "";
  const std::string text = line;
  if (!text.starts_with("Python ")) return "";
  return text.substr(7, text.find_last_not_of(" \n") - 6);
}

std::string format_bytes(double bytes) {
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", bytes / kGiB);
  return fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

std::vector<Fact> examine_machine(const std::string& run_dir) {
  return {cpu_fact(),         isa_fact(),     memory_fact(), size_fact(),
          disk_fact(run_dir), library_fact(), python_fact(), cache_fact()};
}

}  // namespace keel::cli

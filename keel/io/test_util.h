// Helpers of tests: a folder that removes itself, files made of bytes, the fault of a FileError.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "keel/io/file_error.h"

namespace keel::test {

class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> counter = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("keel_test_" + std::to_string(::getpid()) + "_" + std::to_string(counter++)))
                .string();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The fault word of the FileError that `run` throws; "" if it throws nothing.
inline std::string fault_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const FileError& e) {
    return e.fault();
  }
  return "";
}

}  // namespace keel::test

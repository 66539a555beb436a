// Helpers of this module's tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/base/test_data.h"
#include "keel/tokenizer/pipeline/unicode.h"

#ifdef KEEL_SOURCE_DIR
namespace keel::test {

inline std::vector<OrderedJson> read_jsonl(const std::string& path) {
  std::ifstream in(path);
  std::vector<OrderedJson> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(OrderedJson::parse(line));
  EXPECT_FALSE(rows.empty()) << path;
  return rows;
}

// A directory with the given files, gone at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path() / "keel_tokenizer_XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }

 private:
  std::string path_;
};

// Text that visits the corners: scripts, digits, blanks, newlines, contractions, marks, emoji.
inline std::string random_text(std::mt19937& rng, size_t num_points) {
  static const std::vector<std::string> kSnippets = {" ",
                                                     "  ",
                                                     "\n",
                                                     "\r\n",
                                                     "\t",
                                                     "'s",
                                                     "'LL",
                                                     "'re",
                                                     "'\xC5\xBF",
                                                     "don't",
                                                     "123",
                                                     "4567",
                                                     " a",
                                                     "Word",
                                                     " \n ",
                                                     "\xC2\xA0",
                                                     "\xE1\xA0\x8E",
                                                     "\xE3\x80\x80",
                                                     "!?",
                                                     "...",
                                                     "=>",
                                                     "_x",
                                                     "e\xCC\x81",
                                                     "\xC3\xA9",
                                                     "\xEA\xB0\x80",
                                                     "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8",
                                                     "\xE4\xBD\xA0\xE5\xA5\xBD",
                                                     "\xF0\x9F\x98\x80",
                                                     "\xD9\xA3",
                                                     "\xE2\x85\xA7",
                                                     "\xE2\x96\x81",
                                                     "<think>",
                                                     "<|im_end|>",
                                                     "<s>",
                                                     "<",
                                                     "|>",
                                                     "\xE2\x84\xA6",
                                                     "\xE0\xA5\x98",
                                                     "\xC2\x85"};
  std::string out;
  for (size_t i = 0; i < num_points; ++i) {
    switch (rng() % 4) {
      case 0:
        out += static_cast<char>(0x20 + rng() % 0x5F);
        break;
      case 1: {
        const char32_t c = static_cast<char32_t>(rng() % (rng() % 2 ? 0x3000 : 0x32400));
        if (c < 0xD800 || c > 0xDFFF) unicode::append(out, c);
        break;
      }
      default:
        out += kSnippets[rng() % kSnippets.size()];
    }
  }
  return out;
}

}  // namespace keel::test
#endif

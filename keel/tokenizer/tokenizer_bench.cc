// tokenizer_bench DIR FILE...: encoding and decoding speed of the tokenizer in DIR on one core, for
// each text file, against the required 5 MB/s.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "keel/base/error.h"
#include "keel/tokenizer/tokenizer.h"

namespace {

constexpr double kRequiredMbPerS = 5;
constexpr int kRounds = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class F>
double best_seconds(F&& f) {
  double best = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

void bench_file(const keel::Tokenizer& tokenizer, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream buffer;
  buffer << in.rdbuf();
  const std::string text = buffer.str();
  KEEL_REQUIRE(!text.empty(), "[tokenizer_bench] expected text in '{}', got none", path);
  const double mb = static_cast<double>(text.size()) / 1e6;
  std::vector<int32_t> ids;
  const double encode = best_seconds([&] { ids = tokenizer.encode(text, false); });
  std::string back;
  const double decode = best_seconds([&] { back = tokenizer.decode(ids, false); });
  std::printf(
      "%8.2f MB  %5.2f bytes/token  encode %7.1f MB/s (%5.1f x required)  decode %7.1f MB/s"
      "  %s  %s\n",
      mb, static_cast<double>(text.size()) / static_cast<double>(ids.size()), mb / encode,
      mb / encode / kRequiredMbPerS, mb / decode,
      back == text ? "round trip" : "changed by the round", path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench DIR FILE...\n");
    return 2;
  }
  try {
    const auto start = std::chrono::steady_clock::now();
    const auto tokenizer = keel::Tokenizer::load(argv[1]);
    std::printf("%s: %d tokens, loaded in %.0f ms\n", argv[1], tokenizer->vocab_size(),
                seconds_since(start) * 1e3);
    for (int i = 2; i < argc; ++i) bench_file(*tokenizer, argv[i]);
  } catch (const keel::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return keel::exit_code(e.kind());
  }
  return 0;
}

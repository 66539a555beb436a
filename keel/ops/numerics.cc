#include "keel/ops/numerics.h"

#include <fmt/format.h>

#include "keel/ops/attention/attention_kernels.h"
#include "keel/ops/isa.h"
#include "keel/ops/log_prob/log_prob_kernels.h"

namespace keel::ops {

std::string numerics_id(DType dtype) {
  std::string isa = kernel_isa();
  for (char& c : isa) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return fmt::format("v{}/{}/leaf{}/split{}/tile{}/{}", kNumericsVersion, isa,
                     num_leaves_for(int64_t{1} << 20), kKvSplit, kVocabTile,
                     dtype == DType::kF32 ? "f32" : "bf16");
}

}  // namespace keel::ops

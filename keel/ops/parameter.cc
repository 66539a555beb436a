#include "keel/ops/parameter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/packed.h"

namespace keel::ops {
namespace {

constexpr int64_t kPublishBlock = 1 << 16;  // a multiple of the panel width

}  // namespace

Parameter::Parameter(std::string name, int64_t n, int64_t k, DType dtype, int64_t count)
    : name_(std::move(name)),
      n_(n),
      k_(k),
      count_(count),
      elements_each_(k > 0 ? packed_elements(n, k) : n),
      dtype_(dtype) {
  KEEL_CHECK(n > 0 && k >= 0 && count > 0, "{}: {} x {} x {}", name_, count, n, k);
  const bool bf16_storage = is_matrix() && dtype == DType::kBF16;
  storage_ = at::zeros({num_elements()}, bf16_storage ? at::kBFloat16 : at::kFloat);
}

void* Parameter::storage_at(int64_t index) const {
  char* base = static_cast<char*>(storage_.data_ptr());
  return base + index * elements_each_ * static_cast<int64_t>(storage_.element_size());
}

PackedView Parameter::view(int64_t index) const {
  return {storage_at(index), dtype_, n_, k_, num_leaves_for(k_)};
}

const float* Parameter::vector() const { return storage_.const_data_ptr<float>(); }

float* Parameter::grad(int64_t index) {
  return grad_.defined() ? grad_.data_ptr<float>() + index * elements_each_ : nullptr;
}

void Parameter::set_rows(int64_t index, int64_t row, int64_t rows, const float* values) {
  KEEL_CHECK(row + rows <= n_ && index < count_, "{}: rows {}..{} of {}", name_, row, row + rows,
             n_);
  KEEL_CHECK(!trainable(), "{}: loading into a parameter that already trains", name_);
  if (is_matrix()) {
    pack_rows(values, k_, row, rows, n_, k_, dtype_, storage_at(index));
    return;
  }
  float* out = static_cast<float*>(storage_at(index)) + row;
  for (int64_t i = 0; i < rows; ++i)
    out[i] = dtype_ == DType::kBF16 ? round_to_bf16(values[i]) : values[i];
}

void Parameter::get_rows(int64_t index, int64_t row, int64_t rows, float* values) const {
  if (is_matrix()) {
    unpack_rows(view(index), row, rows, values, k_);
  } else {
    std::memcpy(values, static_cast<const float*>(storage_at(index)) + row,
                static_cast<size_t>(rows) * sizeof(float));
  }
}

void Parameter::make_trainable() {
  if (trainable()) return;
  grad_ = at::zeros({num_elements()}, at::kFloat);
  if (dtype_ == DType::kF32) {
    master_ = storage_;
    return;
  }
  master_ = at::empty({num_elements()}, at::kFloat);
  float* to = master_.data_ptr<float>();
  if (!is_matrix()) {
    std::memcpy(to, storage_.const_data_ptr<float>(),
                static_cast<size_t>(num_elements()) * sizeof(float));
    return;
  }
  const auto* from = reinterpret_cast<const uint16_t*>(storage_.const_data_ptr<at::BFloat16>());
  for (int64_t i = 0; i < num_elements(); i += kPanel) {
    for (int64_t c = 0; c < kPanel; ++c) {  // undo the interleaving of bf16 panels
      to[i + c] = std::bit_cast<float>(static_cast<uint32_t>(from[i + (c % 8) * 2 + c / 8]) << 16);
    }
  }
}

void Parameter::publish() {
  if (dtype_ == DType::kF32 || !trainable()) return;
  const float* from = master_.const_data_ptr<float>();
  if (!is_matrix()) {
    float* to = storage_.data_ptr<float>();
    for (int64_t i = 0; i < num_elements(); ++i) to[i] = round_to_bf16(from[i]);
    return;
  }
  auto* to = reinterpret_cast<uint16_t*>(storage_.data_ptr<at::BFloat16>());
  compute_pool().parallel_for(
      (num_elements() + kPublishBlock - 1) / kPublishBlock, [&](int64_t b, int) {
        const int64_t end = std::min(num_elements(), (b + 1) * kPublishBlock);
        for (int64_t i = b * kPublishBlock; i < end; i += kPanel) {
          for (int64_t c = 0; c < kPanel; ++c) to[i + (c % 8) * 2 + c / 8] = to_bf16(from[i + c]);
        }
      });
}

}  // namespace keel::ops

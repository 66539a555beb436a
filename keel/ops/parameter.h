// A trainable tensor: what kernels read, the f32 master that the optimizer updates, and its
// gradient.
//
// Matrices [n, k] (or `count` of them, one an expert) are stored packed (packed.h); vectors [n]
// plainly. In f32 models master and storage are the same memory. In bf16 models storage holds the
// rounded master; vectors are f32 holding bf16 values. master and grad are flat f32 arrays in
// packed order, so the optimizer, norms and checkpoints treat every parameter as one array.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "keel/ops/packed.h"

namespace keel::ops {

class Parameter {
 public:
  // k == 0: a vector of n.
  Parameter(std::string name, int64_t n, int64_t k, DType dtype, int64_t count = 1);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return name_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  bool is_matrix() const { return k_ > 0; }
  bool trainable() const { return grad_.defined(); }
  int64_t num_elements() const { return count_ * elements_each_; }  // with panel padding
  int64_t num_logical() const { return count_ * n_ * std::max<int64_t>(k_, 1); }

  PackedView view(int64_t index = 0) const;  // matrices
  const float* vector() const;               // vectors
  float* grad(int64_t index = 0);  // packed f32 of one matrix, or the vector; null if frozen

  // Loading: rows of a row-major f32 matrix (or all of a vector: rows = n, k = 1).
  void set_rows(int64_t index, int64_t row, int64_t rows, const float* values);
  void get_rows(int64_t index, int64_t row, int64_t rows, float* values) const;

  // Allocates master and gradient (zero). Idempotent.
  void make_trainable();
  // Rounds master into storage; call after master changed. No-op where they are the same memory.
  void publish();

  at::Tensor& master() { return master_; }
  at::Tensor& grad_tensor() { return grad_; }

 private:
  void* storage_at(int64_t index) const;

  std::string name_;
  int64_t n_, k_, count_, elements_each_;
  DType dtype_;
  at::Tensor storage_;  // [count * elements_each] f32 or bf16
  at::Tensor master_, grad_;
};

}  // namespace keel::ops

// What most torch-using files need; kept small on purpose (ATen.h alone costs 7 s a file).
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

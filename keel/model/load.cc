#include "keel/model/load.h"

#include <vector>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"

namespace keel::model {
namespace {

// A parameter of the specification as matrices of rows: experts x rows x columns (columns 0: a
// vector).
struct Extent {
  int64_t count = 1, rows = 0, columns = 0;
};

Extent extent_of(const ParamSpec& p) {
  if (p.shape.size() == 3) return {p.shape[0], p.shape[1], p.shape[2]};
  return {1, p.shape[0], p.shape.size() == 2 ? p.shape[1] : 0};
}

// How many heads a parameter spreads over its rows (or columns, for o); 0: none.
int64_t heads_of(const ModelSpec& spec, ParamRole role) {
  switch (role) {
    case ParamRole::kQ:
    case ParamRole::kQBias:
    case ParamRole::kO:
      return spec.heads;
    case ParamRole::kK:
    case ParamRole::kKBias:
    case ParamRole::kV:
    case ParamRole::kVBias:
      return spec.kv_heads;
    case ParamRole::kQNorm:
    case ParamRole::kKNorm:
      return 1;
    default:
      return 0;
  }
}

// A parameter as it lies in memory: its extent there, and copies between the two forms.
class Padding {
 public:
  Padding(const ModelSpec& spec, const ParamSpec& p)
      : spec_(spec), outer_(extent_of(p)), inner_(outer_) {
    const int64_t heads = heads_of(spec, p.role);
    by_columns_ = p.role == ParamRole::kO;
    active_ = heads > 0 && padded_head_dim(spec) != spec.head_dim;
    if (!active_) return;
    (by_columns_ ? inner_.columns : inner_.rows) = heads * padded_head_dim(spec);
  }
  bool active() const { return active_; }
  const Extent& inner() const { return inner_; }
  int64_t inner_elements() const { return inner_.rows * std::max<int64_t>(1, inner_.columns); }

  void expand(std::span<const float> outer, std::span<float> inner) const {
    std::fill(inner.begin(), inner.end(), 0.0f);
    each([&](size_t o, size_t i) { inner[i] = outer[o]; });
  }
  void shrink(std::span<const float> inner, std::span<float> outer) const {
    each([&](size_t o, size_t i) { outer[o] = inner[i]; });
  }

 private:
  int64_t moved(int64_t i) const {
    return i / spec_.head_dim * padded_head_dim(spec_) +
           padded_head_index(spec_, i % spec_.head_dim);
  }
  template <class F>
  void each(F&& copy) const {
    const int64_t columns = std::max<int64_t>(1, outer_.columns),
                  wide = std::max<int64_t>(1, inner_.columns);
    for (int64_t r = 0; r < outer_.rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t to = by_columns_ ? r * wide + moved(c) : moved(r) * wide + c;
        copy(static_cast<size_t>(r * columns + c), static_cast<size_t>(to));
      }
    }
  }
  const ModelSpec& spec_;
  Extent outer_, inner_;
  bool active_ = false, by_columns_ = false;
};

// Calls body(matrix index, row-major values, extent in memory).
template <class F>
void for_matrices(const Extent& e, float* values, F&& body) {
  const int64_t each = e.rows * std::max<int64_t>(1, e.columns);
  for (int64_t c = 0; c < e.count; ++c) body(c, values + c * each);
}

}  // namespace

std::unique_ptr<Model> load_model(const ModelDir& dir, ops::DType dtype) {
  auto model = std::make_unique<Model>(dir.spec(), dtype);
  const auto& params = dir.params();
  compute_pool().parallel_for(std::ssize(params), [&](int64_t i, int) {
    const ParamSpec& p = params[static_cast<size_t>(i)];
    std::vector<float> values(static_cast<size_t>(p.num_elements()));
    dir.read_f32(static_cast<size_t>(i), values);
    const Padding padding(dir.spec(), p);
    if (padding.active()) {
      std::vector<float> wide(static_cast<size_t>(padding.inner_elements()));
      padding.expand(values, wide);
      values.swap(wide);
    }
    const Model::Place place = model->place(p);
    const Extent& e = padding.inner();
    for_matrices(e, values.data(), [&](int64_t c, const float* v) {
      place.param->set_rows(c, place.row, e.rows, v);
    });
  });
  return model;
}

namespace {

// read(matrix index, extent, out) fills row-major values as they lie in memory.
template <class F>
void read_padded(const Model& model, const ParamSpec& p, std::span<float> out, F&& read) {
  const Padding padding(model.spec(), p);
  std::vector<float> wide(padding.active() ? static_cast<size_t>(padding.inner_elements()) : 0);
  for_matrices(padding.inner(), padding.active() ? wide.data() : out.data(),
               [&](int64_t c, float* v) { read(c, padding.inner(), v); });
  if (padding.active()) padding.shrink(wide, out);
}

}  // namespace

void read_parameter(const Model& model, const ParamSpec& p, std::span<float> out) {
  const Model::Place place = model.place(p);
  read_padded(model, p, out, [&](int64_t c, const Extent& e, float* v) {
    place.param->get_rows(c, place.row, e.rows, v);
  });
}

void read_gradient(Model& model, const ParamSpec& p, std::span<float> out) {
  const Model::Place place = model.place(p);
  KEEL_CHECK(place.param->trainable(), "{} has no gradient", p.name);
  read_padded(model, p, out, [&](int64_t c, const Extent& e, float* v) {
    const float* grad = place.param->grad(c);
    if (e.columns == 0) {
      std::copy_n(grad + place.row, e.rows, v);
    } else {
      const ops::PackedView view{grad, ops::DType::kF32, place.param->n(), place.param->k(), 1};
      ops::unpack_rows(view, place.row, e.rows, v, e.columns);
    }
  });
}

void save_model(const Model& model, const std::string& folder, const ExportOptions& options) {
  export_model(
      folder, model.spec(), options,
      [&](size_t, const ParamSpec& p, std::span<float> out) { read_parameter(model, p, out); });
}

}  // namespace keel::model

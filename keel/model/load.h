// Model weights from and to Hugging Face folders.
#pragma once

#include <memory>
#include <string>

#include "keel/model/model.h"
#include "keel/spec/export.h"
#include "keel/spec/model_dir.h"

namespace keel::model {

// Reads all weights (through memory maps, several parameters at once) into packed storage; values
// are rounded to dtype. Throws FileError for a wrong folder.
std::unique_ptr<Model> load_model(const ModelDir& dir, ops::DType dtype);

// Writes the folder so that transformers loads it. In bf16 models that train, the rounded weights
// are saved.
void save_model(const Model& model, const std::string& folder, const ExportOptions& options);

// Values of one parameter of the specification, row-major as in Hugging Face files.
void read_parameter(const Model& model, const ParamSpec& param, std::span<float> out);
// The same for its gradient (zero-size storage if frozen is an internal error).
void read_gradient(Model& model, const ParamSpec& param, std::span<float> out);

}  // namespace keel::model

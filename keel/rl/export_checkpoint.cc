#include "keel/rl/export_checkpoint.h"

#include <algorithm>

#include "keel/base/error.h"
#include "keel/model/load.h"
#include "keel/rl/train_config.h"
#include "keel/spec/model_name.h"
#include "keel/train/checkpoint.h"

namespace keel::rl {

int64_t export_checkpoint(const std::string& run, int64_t step, const std::string& folder,
                          DType dtype) {
  const std::string root = run + "/checkpoints";
  const auto steps = train::list_checkpoints(root);
  KEEL_REQUIRE(!steps.empty(),
               "[{}] expected a complete checkpoint, found none; try trainer.save_every", root);
  if (step == 0) step = steps.back();
  KEEL_REQUIRE(std::find(steps.begin(), steps.end(), step) != steps.end(),
               "[{}] expected a checkpoint of step {}, found none; try --step {}", root, step,
               steps.back());
  TrainConfig config;
  load_config(config, read_config_input(run + "/config.yaml", {})).findings.throw_if_errors();
  const std::string path = resolve_model(config.model.path);
  const ModelDir dir(path);
  const auto model = model::load_model(
      dir, config.model.dtype == ComputeType::kBf16 ? ops::DType::kBF16 : ops::DType::kF32);
  model->make_trainable();
  train::AdamW optimizer(model->parameters(), {});
  train::load_checkpoint(root, step, optimizer);
  model->publish();
  ExportOptions options;
  options.dtype = dtype;
  options.expert_layout = dir.expert_layout();
  options.tied_head = dir.has_tied_head();
  options.copy_from = path;
  model::save_model(*model, folder, options);
  return step;
}

}  // namespace keel::rl

#include "keel/spec/export.h"

#include <filesystem>
#include <memory>
#include <vector>

#include "keel/io/atomic_file.h"
#include "keel/io/atomic_folder.h"
#include "keel/io/half.h"
#include "keel/io/json_file.h"
#include "keel/io/mapped_file.h"
#include "keel/io/safetensors.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMaxCopiedBytes = uint64_t{256} << 20;

struct PlannedPiece {
  size_t param;
  ParamPiece piece;
  size_t shard;
};

// Every stored tensor in the order of writing, cut into shards.
std::vector<PlannedPiece> plan_pieces(const std::vector<ParamSpec>& params,
                                      const ExportOptions& options, bool tied) {
  std::vector<PlannedPiece> plan;
  for (size_t i = 0; i < params.size(); ++i) {
    for (auto& piece : params[i].pieces(options.expert_layout)) plan.push_back({i, piece, 0});
  }
  if (tied && options.tied_head) plan.push_back({0, {"lm_head.weight", params[0].shape, 0}, 0});
  const auto size = static_cast<uint64_t>(dtype_bytes(options.dtype));
  uint64_t in_shard = 0;
  size_t shard = 0;
  for (auto& p : plan) {
    const uint64_t bytes = static_cast<uint64_t>(num_elements(p.piece.shape)) * size;
    if (in_shard > 0 && in_shard + bytes > options.max_shard_bytes) {
      ++shard;
      in_shard = 0;
    }
    in_shard += bytes;
    p.shard = shard;
  }
  return plan;
}

std::string shard_name(size_t shard, size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count);
}

void write_index(const std::string& folder, const std::vector<PlannedPiece>& plan, size_t count,
                 DType dtype) {
  OrderedJson map = OrderedJson::object();
  int64_t total = 0;
  for (const auto& p : plan) {
    map[p.piece.name] = shard_name(p.shard, count);
    total += num_elements(p.piece.shape) * dtype_bytes(dtype);
  }
  write_json_file(folder + "/model.safetensors.index.json",
                  {{"metadata", {{"total_size", total}}}, {"weight_map", map}});
}

std::unique_ptr<SafetensorsWriter> open_shard(const std::string& folder,
                                              const std::vector<PlannedPiece>& plan, size_t shard,
                                              size_t count, DType dtype) {
  std::vector<SafetensorsDecl> decls;
  for (const auto& p : plan) {
    if (p.shard == shard) decls.push_back({p.piece.name, dtype, p.piece.shape});
  }
  return std::make_unique<SafetensorsWriter>(folder + "/" + shard_name(shard, count),
                                             std::move(decls));
}

bool is_weight_file(const std::string& name) {
  for (const char* end : {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json",
                          ".pt", ".pth", ".gguf", ".h5", ".msgpack"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

// config.json as it was, except for the dtype.
void copy_config(const std::string& from, const std::string& to, DType dtype) {
  OrderedJson config = read_ordered_json_file(from);
  const char* key = config.contains("dtype") ? "dtype" : "torch_dtype";
  const std::string name(dtype_torch_name(dtype));
  if (config.contains(key) && config[key] == name) {
    write_file_atomic(to, MappedFile(from).bytes());
  } else {
    config[key] = name;
    write_json_file(to, config);
  }
}

void copy_small_files(const std::string& from, const std::string& to, DType dtype) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const auto name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.starts_with('.') || is_weight_file(name) ||
        entry.file_size() > kMaxCopiedBytes) {
      continue;
    }
    if (name == "config.json") {
      copy_config(entry.path().string(), to + "/" + name, dtype);
    } else {
      write_file_atomic(to + "/" + name, MappedFile(entry.path().string()).bytes());
    }
  }
}

}  // namespace

void write_weights(const std::string& folder, const ModelSpec& spec, const ExportOptions& options,
                   const ReadParam& read) {
  const auto params = parameters(spec);
  const auto plan = plan_pieces(params, options, spec.tied);
  const size_t count = plan.back().shard + 1;
  std::unique_ptr<SafetensorsWriter> writer;
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < plan.size(); ++i) {
    const auto& p = plan[i];
    if (i == 0 || plan[i - 1].shard != p.shard) {
      if (writer) writer->commit();
      writer = open_shard(folder, plan, p.shard, count, options.dtype);
    }
    const auto& param = params[p.param];
    if (i == 0 || plan[i - 1].param != p.param) {
      values.resize(static_cast<size_t>(param.num_elements()));
      read(p.param, param, values);
    }
    const auto part = std::span(values).subspan(static_cast<size_t>(p.piece.offset),
                                                static_cast<size_t>(num_elements(p.piece.shape)));
    bytes.resize(part.size() * static_cast<size_t>(dtype_bytes(options.dtype)));
    from_f32(options.dtype, part, bytes);
    writer->write(p.piece.name, bytes);
  }
  writer->commit();
  if (count > 1) write_index(folder, plan, count, options.dtype);
}

void export_model(const std::string& folder, const ModelSpec& spec, const ExportOptions& options,
                  const ReadParam& read) {
  AtomicFolder out(folder);
  const std::string& to = out.temporary_path();
  if (options.copy_from.empty()) {
    ModelSpec saved = spec;
    saved.dtype = options.dtype;
    write_json_file(to + "/config.json", config_json(saved));
    write_json_file(to + "/generation_config.json", generation_config_json(saved));
  } else {
    copy_small_files(options.copy_from, to, options.dtype);
  }
  write_weights(to, spec, options, read);
  out.commit();
}

}  // namespace keel

// Where a model lies: a folder, or org/name in the local Hugging Face cache.
#pragma once

#include <optional>
#include <string>

namespace keel::cli {

// $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub.
std::string hf_cache_dir();

// `name` itself if it exists; else the newest complete snapshot of org/name in the cache; else
// nullopt.
std::optional<std::string> find_model(const std::string& name);

// "org/name" and not a relative path.
bool is_hub_name(const std::string& name);

}  // namespace keel::cli

// "org/name" or a path -> the folder on this machine.
#pragma once

#include <string>

namespace keel {

// A folder of that path; else the snapshot of org/name in the local Hugging Face cache
// (HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; the
// revision in refs/main). Nothing is downloaded. Throws FileError "missing_file" with one line that
// says where it looked and how to download.
std::string resolve_model(const std::string& name);

}  // namespace keel

// What a file really is, by its first bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace keel {

// Throws FileError "lfs_pointer" if the bytes are the text that Git LFS leaves in place of a file
// that was not downloaded.
void refuse_lfs_pointer(const std::string& path, std::span<const std::byte> bytes);

// Throws FileError "wrong_format" for zip files and pickles (PyTorch checkpoints), which Keel
// never opens: loading a pickle can run code.
void refuse_pickle(const std::string& path, std::span<const std::byte> bytes);

}  // namespace keel

#include "keel/io/atomic_folder.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "keel/base/error.h"
#include "keel/io/atomic_file.h"
#include "keel/io/file_error.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

void make_folders(const fs::path& path) {
  std::error_code failed;
  fs::create_directories(path, failed);
  if (failed) throw_errno(path.string(), "create", failed.value());
}

}  // namespace

AtomicFolder::AtomicFolder(const std::string& path) : path_(path) {
  fs::path p = fs::absolute(path).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();  // "a/b/" -> "a/b"
  path_ = p.string();
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(p, ignored)) &&
      !(fs::is_directory(p, ignored) && fs::is_empty(p, ignored))) {
    throw_file_error("exists", path_,
                     "expected a new or empty folder, got one with files; try: another name or "
                     "remove it first");
  }
  make_folders(p.parent_path());
  temporary_path_ =
      (p.parent_path() / fmt::format(".{}.tmp-{}", p.filename().string(), ::getpid())).string();
  fs::remove_all(temporary_path_, ignored);
  make_folders(temporary_path_);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_path_, ignored);
}

void AtomicFolder::commit() {
  KEEL_CHECK(!committed_, "{}: commit twice", path_);
  sync_folder(temporary_path_);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) throw_errno(path_, "create", errno);
  committed_ = true;
  sync_folder(fs::path(path_).parent_path().string());
}

}  // namespace keel

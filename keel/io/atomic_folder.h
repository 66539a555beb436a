// A folder that appears complete or not at all: filled under a temporary name beside it, then
// renamed.
#pragma once

#include <string>

namespace keel {

class AtomicFolder {
 public:
  // Refuses (FileError "exists") a path that is a file or a folder with something in it. Makes
  // missing parent folders.
  explicit AtomicFolder(const std::string& path);
  // Without commit() everything is removed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where to put the files until commit().
  const std::string& temporary_path() const { return temporary_path_; }
  void commit();

 private:
  std::string path_;
  std::string temporary_path_;
  bool committed_ = false;
};

}  // namespace keel

// Files and folders under a name that nobody can guess, beside the place they are meant for, until they take its name.
// Given up before that they leave nothing behind, and those of processes that were killed are removed by the next one
// that owns the place: as long as its process lives, each is locked. Not copyable.
#pragma once

#include <filesystem>

namespace espalier {

class TemporaryFile {
 public:
  // Throws DeviceError with the target's path and the system's reason.
  explicit TemporaryFile(const std::filesystem::path& target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }  // appends

  // Takes the place of what is there, also of a link.
  void replace(const std::filesystem::path& target);
  // False: something is there.
  [[nodiscard]] bool take_free_name(const std::filesystem::path& target);
  // The open file, now the caller's to close. Requires that it has its name.
  int release();

 private:
  std::filesystem::path path_;  // empty: it has its name
  int descriptor_ = -1;
};

class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::filesystem::path& target);
  ~TemporaryDirectory();  // with everything in it
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // False: something is there.
  [[nodiscard]] bool take_free_name(const std::filesystem::path& target);
  // The folder at `target` is removed.
  void replace(const std::filesystem::path& target);

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

// Removes what processes that are gone have left in this folder.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace espalier

// A file that a user names for a command to write. One rule for all of them:
//   - "-" is standard output;
//   - a character device or a FIFO is written to directly;
//   - a symbolic link is followed, and what it leads to counts;
//   - a regular file that exists is refused, unless it may be replaced; one that is read-only is refused in any case;
//   - a regular file is there whole or not at all, on disk when finish() returns.
// One thread at a time. Not copyable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/temporary_file.h"

namespace espalier {

enum class Existing { refuse, replace };

// What can be told before the work begins. Throws InputError.
void check_output(const std::filesystem::path& path, Existing existing);

class OutputFile {
 public:
  // Opens it. Throws InputError where the rule refuses, DeviceError where the system does.
  OutputFile(std::filesystem::path path, Existing existing);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  // A regular file takes its name. Throws, and then leaves nothing behind.
  void finish();
  // After finish(), the open file, which is now the caller's; it appends.
  int release();
  bool regular() const { return temporary_.has_value(); }

 private:
  std::filesystem::path path_;    // as the user wrote it
  std::filesystem::path target_;  // behind all links
  Existing existing_;
  std::optional<TemporaryFile> temporary_;
  std::optional<std::uint32_t> mode_;  // of the file that it replaces
  int direct_ = -1;                    // a device or a FIFO
};

// All at once.
void write_output(const std::filesystem::path& path, Existing existing, std::string_view bytes);

}  // namespace espalier

#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/whole_file.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel follows

struct Place {
  fs::path target = {};
  std::optional<std::uint32_t> mode = {};  // of the regular file that is there
  bool direct = false;
};

[[noreturn]] void refuse_existing(const fs::path& path) {
  input_error("{}: the file exists, expected a new name or --force", path.string());
}

// Where a link leads to that may lead nowhere yet.
fs::path followed(fs::path path) {
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, error)); ++links) {
    const fs::path next = fs::read_symlink(path, error);
    if (error || links == kMostLinks)
      input_error("{}: cannot follow the link: {}", path.string(), std::strerror(error ? error.value() : ELOOP));
    path = path.parent_path() / next;
  }
  return path;
}

void check_folder(const fs::path& path, const fs::path& target) {
  const fs::path folder = target.parent_path();
  struct stat info {};
  if (folder.empty()) return;
  if (::stat(folder.c_str(), &info) != 0 && errno == ENOENT)
    input_error("{}: no such directory as {}", path.string(), folder.string());
  if (info.st_mode == 0) input_error("{}: {}: {}", path.string(), folder.string(), std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) input_error("{}: {} is no directory", path.string(), folder.string());
}

Place place_of(const fs::path& path, Existing existing) {
  if (path == "-") return {.direct = true};
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) input_error("{}: {}", path.string(), std::strerror(errno));
    Place place{.target = followed(path)};
    check_folder(path, place.target);
    return place;
  }
  if (S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode)) return {.target = path, .direct = true};
  if (!S_ISREG(info.st_mode)) input_error("{}: expected a file or a name for a new one", path.string());
  if (existing == Existing::refuse) refuse_existing(path);
  if ((info.st_mode & 0222) == 0 || ::access(path.c_str(), W_OK) != 0)
    input_error("{}: is read-only, expected a file that may be replaced", path.string());
  return {.target = followed(path), .mode = info.st_mode & 0777};
}

// A FIFO waits for its reader, as for any program.
int open_direct(const fs::path& path, const fs::path& target) {
  const int file = path == "-" ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                               : ::open(target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (file < 0) device_error("{}: cannot write: {}", path.string(), std::strerror(errno));
  return file;
}

}  // namespace

void check_output(const fs::path& path, Existing existing) {
  place_of(path, existing);
}

OutputFile::OutputFile(fs::path path, Existing existing) : path_(std::move(path)), existing_(existing) {
  const Place place = place_of(path_, existing_);
  target_ = place.target;
  mode_ = place.mode;
  if (place.direct) {
    direct_ = open_direct(path_, target_);
    return;
  }
  remove_leftovers(target_.parent_path());
  temporary_.emplace(target_);
}

OutputFile::~OutputFile() {
  if (direct_ >= 0) ::close(direct_);
}

void OutputFile::write(std::string_view bytes) {
  write_all(temporary_ ? temporary_->descriptor() : direct_, bytes, path_);
}

void OutputFile::finish() {
  if (!temporary_) return;
  const int file = temporary_->descriptor();
  // Some file systems tell only now that the disk is full.
  if ((mode_ && ::fchmod(file, *mode_) != 0) || ::fsync(file) != 0)
    device_error("{}: cannot write: {}", path_.string(), std::strerror(errno));
  if (existing_ == Existing::replace)
    temporary_->replace(target_);
  else if (!temporary_->take_free_name(target_))
    refuse_existing(path_);
}

int OutputFile::release() {
  return temporary_ ? temporary_->release() : std::exchange(direct_, -1);
}

void write_output(const fs::path& path, Existing existing, std::string_view bytes) {
  OutputFile file(path, existing);
  file.write(bytes);
  file.finish();
}

}  // namespace espalier

#include "report/report_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace espalier {
namespace {

using Path = std::filesystem::path;

// Without a slash at the end: the temporary name stands beside it.
Path folder_path(const Path& path) {
  const Path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

void check_place(const Path& path, bool replace) {
  if (!std::filesystem::exists(std::filesystem::symlink_status(path))) return;
  if (!replace) input_error("-o {}: exists already, expected a new directory, or --force", path.string());
  if (!std::filesystem::is_regular_file(path / kReportFile))
    input_error("-o {}: no {}, expected an earlier report to replace", path.string(), kReportFile);
}

void rename_folder(const Path& from, const Path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) device_error("{}: cannot create the directory: {}", to.string(), error.message());
}

}  // namespace

ReportFolder::ReportFolder(const Path& path, bool replace) : path_(folder_path(path)) {
  check_place(path_, replace);
  temporary_ = fmt::format("{}.{}.tmp", path_.string(), getpid());
  std::error_code error;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), error);
  if (!std::filesystem::create_directory(temporary_, error))
    device_error("{}: cannot create the directory: {}", path_.string(), error.message());
}

ReportFolder::~ReportFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

void ReportFolder::add(const Path& name, std::string_view bytes) const {
  const Path path = temporary_ / name;
  std::error_code ignored;
  std::filesystem::create_directory(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) device_error("{}: cannot write the file", (path_ / name).string());
}

void ReportFolder::publish() {
  const Path old = fmt::format("{}.{}.old", path_.string(), getpid());
  const bool replaces = std::filesystem::exists(path_);
  std::error_code ignored;
  if (replaces) rename_folder(path_, old);
  try {
    rename_folder(temporary_, path_);
  } catch (const DeviceError&) {
    if (replaces) std::filesystem::rename(old, path_, ignored);
    throw;
  }
  temporary_.clear();
  if (replaces) std::filesystem::remove_all(old, ignored);
}

}  // namespace espalier

#include "report/report_folder.h"

#include "base/error.h"
#include "base/whole_file.h"

namespace espalier {
namespace {

using Path = std::filesystem::path;

// Without a slash at the end: the temporary name stands beside it. A link to an earlier report stays one.
Path folder_path(const Path& path) {
  std::error_code error;
  if (const Path whole = std::filesystem::canonical(path, error); !error) return whole;
  const Path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

[[noreturn]] void refuse_existing(const Path& path) {
  input_error("-o {}: exists already, expected a new directory, or --force", path.string());
}

void check_place(const Path& path, bool replace) {
  if (!std::filesystem::exists(std::filesystem::symlink_status(path))) return;
  if (!replace) refuse_existing(path);
  if (!std::filesystem::is_regular_file(path / kReportFile))
    input_error("-o {}: no {}, expected an earlier report to replace", path.string(), kReportFile);
}

}  // namespace

ReportFolder::ReportFolder(const Path& path, bool replace) : path_(folder_path(path)), replace_(replace) {
  check_place(path_, replace);
  std::error_code ignored;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), ignored);
  remove_leftovers(path_.parent_path());
  temporary_.emplace(path_);
}

void ReportFolder::add(const Path& name, std::string_view bytes) const {
  const Path path = temporary_->path() / name;
  std::error_code ignored;
  std::filesystem::create_directory(path.parent_path(), ignored);
  write_whole_file(path, bytes);
}

void ReportFolder::publish() {
  if (temporary_->take_free_name(path_)) return;
  check_place(path_, replace_);  // it may have come since
  temporary_->replace(path_);
}

}  // namespace espalier

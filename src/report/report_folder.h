// The directory of a report, which is there whole or not at all: files are written under a temporary name beside it,
// and publish() renames. Given up before that, it leaves nothing behind. Not copyable.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/temporary_file.h"

namespace espalier {

class ReportFolder {
 public:
  // `replace`: an earlier report may be there. Throws InputError when there is something else, or may be nothing at
  // all; DeviceError when the disk does not take it.
  ReportFolder(const std::filesystem::path& path, bool replace);

  // `name` may have one folder in it: "tables/e1.csv". Throws DeviceError.
  void add(const std::filesystem::path& name, std::string_view bytes) const;
  void publish();

 private:
  std::filesystem::path path_;
  bool replace_;
  std::optional<TemporaryDirectory> temporary_;
};

inline constexpr const char* kReportFile = "report.json";  // by which a report is known

}  // namespace espalier

#include "eval/turn_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/whole_file.h"
#include "trace/record_json.h"

namespace espalier {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  device_error("{}: cannot write: {}", path.string(), std::strerror(errno));
}

}  // namespace

TurnJournal::TurnJournal(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_ < 0) fail(path_);
  try {
    lock();
    const std::string text = read_text_file(path_);
    // A line that a killed process has not finished is cut off.
    if (::ftruncate(file_, static_cast<off_t>(text.rfind('\n') + 1)) != 0) fail(path_);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

TurnJournal::~TurnJournal() {
  if (file_ >= 0) ::close(file_);
}

TurnJournal::TurnJournal(TurnJournal&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

void TurnJournal::lock() {
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0)
    input_error("{}: another process is writing to this run", path_.parent_path().string());
}

void TurnJournal::add(const TurnRecord& turn) {
  const off_t before = ::lseek(file_, 0, SEEK_END);
  try {
    write_all(file_, journal_line(turn) + "\n", path_);
    if (::fdatasync(file_) != 0) fail(path_);
  } catch (...) {
    [[maybe_unused]] const int cut = ::ftruncate(file_, before);
    throw;
  }
}

std::vector<TurnRecord> read_journal(const std::filesystem::path& path) {
  std::vector<TurnRecord> turns;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return turns;
  const std::string text = read_text_file(path);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string place = fmt::format("{}: turn {}", path.string(), turns.size() + 1);
    turns.push_back(turn_record_from(parse_json(std::string_view(text).substr(begin, end - begin), place), place));
  }
  return turns;
}

std::string journal_line(const TurnRecord& turn) {
  return one_line(to_json(turn));
}

}  // namespace espalier

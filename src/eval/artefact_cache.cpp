#include "eval/artefact_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/temporary_file.h"
#include "base/whole_file.h"
#include "eval/process_life.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr auto kFirstLockPause = std::chrono::milliseconds(2);
constexpr auto kLongestLockPause = std::chrono::milliseconds(200);

std::string hash_of(std::string_view text) {
  return sha256(std::as_bytes(std::span(text)));
}

std::optional<std::string> read_if_there(const fs::path& path) {
  try {
    return read_text_file(path);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// A line with the hash of the rest, so that a damaged one is no artefact.
std::string sealed(std::string_view content) {
  return fmt::format("{}\n{}", hash_of(content), content);
}

std::optional<std::string> unsealed(const fs::path& path) {
  const auto text = read_if_there(path);
  if (!text) return std::nullopt;
  const std::size_t end = text->find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string content = text->substr(end + 1);
  return text->substr(0, end) == hash_of(content) ? std::optional(std::move(content)) : std::nullopt;
}

// True when the artefact is in the folder now.
bool keep(const fs::path& path, std::string_view content) {
  try {
    write_whole_file(path, sealed(content));
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

double age_of(const fs::path& path, std::error_code& error) {
  const auto changed = fs::last_write_time(path, error);
  return error ? 0 : std::chrono::duration<double>(fs::file_time_type::clock::now() - changed).count();
}

}  // namespace

// A file that exists while its owner makes the artefact.
class ArtefactCache::Lock {
 public:
  Lock(fs::path path, double stale_seconds) : path_(std::move(path)), stale_seconds_(stale_seconds) {}
  ~Lock() {
    if (owned_ && read_if_there(path_) == owner_) ::unlink(path_.c_str());
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  enum class Answer { taken, busy, impossible };

  // The file appears with its owner's name in it, or not at all.
  Answer take() {
    try {
      const TemporaryFile mine(path_);
      write_all(mine.descriptor(), owner_, path_);
      owned_ = ::link(mine.path().c_str(), path_.c_str()) == 0;
      if (owned_) return Answer::taken;
      return errno == EEXIST ? Answer::busy : Answer::impossible;
    } catch (const DeviceError&) {
      return Answer::impossible;
    }
  }

  // Only one process at a time looks and removes: what it saw is what it removes. The guard's own lock ends with its
  // process.
  void break_if_stale() const {
    if (!is_stale()) return;
    const int guard = ::open((path_.string() + ".guard").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (guard < 0) return;
    if (::flock(guard, LOCK_EX) == 0 && is_stale()) ::unlink(path_.c_str());
    ::close(guard);
  }

 private:
  bool is_stale() const {
    std::error_code error;
    if (age_of(path_, error) > stale_seconds_) return true;
    const auto owner = read_if_there(path_);
    return owner && has_ended(nlohmann::json::parse(*owner, nullptr, /*allow_exceptions=*/false));
  }

  fs::path path_;
  double stale_seconds_;
  std::string owner_ = this_process().dump();
  bool owned_ = false;
};

ArtefactCache::ArtefactCache(std::optional<fs::path> folder, double stale_seconds)
    : folder_(std::move(folder)), stale_seconds_(stale_seconds) {}

std::string ArtefactCache::get(std::string_view kind, std::string_view description,
                               const std::function<std::string()>& build) const {
  if (!folder_) return build();
  const fs::path path = *folder_ / fmt::format("{}-{}", kind, hash_of(description));
  if (auto found = unsealed(path)) return *found;
  std::error_code ignored;
  fs::create_directories(*folder_, ignored);
  Lock lock(path.string() + ".lock", stale_seconds_);
  for (auto pause = kFirstLockPause;; pause = std::min(2 * pause, kLongestLockPause)) {
    const Lock::Answer answer = lock.take();
    // Whoever had the lock before may have finished it.
    if (auto found = unsealed(path)) return *found;
    if (answer == Lock::Answer::impossible) return build();
    if (answer == Lock::Answer::taken) break;
    lock.break_if_stale();
    std::this_thread::sleep_for(pause);
  }
  remove_leftovers(*folder_);
  std::string content = build();
  keep(path, content);
  return content;
}

}  // namespace espalier

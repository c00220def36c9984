#include "base/temporary_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".espalier-tmp";
constexpr std::size_t kLongestStem = 200;  // so that the name is none too long where the target's is not

[[noreturn]] void cannot(const char* action, const fs::path& target) {
  device_error("{}: cannot {}: {}", target.string(), action, std::strerror(errno));
}

fs::path temporary_name(const fs::path& target) {
  std::random_device random;
  const std::string stem = target.filename().string().substr(0, kLongestStem);
  return target.parent_path() / fmt::format("{}.{:08x}{:08x}{}", stem, random(), random(), kSuffix);
}

bool still_there(int descriptor) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 && info.st_nlink > 0;
}

// Whoever looks for leftovers between these two calls takes it for one.
int create_locked(const fs::path& path) {
  const int file =
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0666);
  if (file < 0) return -1;
  ::flock(file, LOCK_EX);
  if (still_there(file)) return file;
  ::close(file);
  errno = EEXIST;
  return -1;
}

int make_locked(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) return -1;
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) {
    if (errno == ENOENT) errno = EEXIST;
    return -1;
  }
  ::flock(folder, LOCK_EX);
  if (still_there(folder)) return folder;
  ::close(folder);
  errno = EEXIST;
  return -1;
}

template <typename Make>
int make_under_new_name(const fs::path& target, fs::path& path, const Make& make) {
  int made = -1;
  do {
    path = temporary_name(target);
    made = make(path);
  } while (made < 0 && errno == EEXIST);
  return made;
}

// A rename that replaces nothing, also where the file system has none.
bool rename_to_free(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) {
    struct stat info {};
    if (::lstat(to.c_str(), &info) == 0) return false;
    if (::rename(from.c_str(), to.c_str()) == 0) return true;
  }
  if (errno == EEXIST || errno == ENOTEMPTY) return false;
  cannot("write", to);
}

bool is_temporary_name(std::string_view name) {
  if (!name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  return name.size() > 17 && name[name.size() - 17] == '.' &&
         name.substr(name.size() - 16).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

TemporaryFile::TemporaryFile(const fs::path& target) : descriptor_(make_under_new_name(target, path_, create_locked)) {
  if (descriptor_ < 0) cannot("write", target);
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TemporaryFile::replace(const fs::path& target) {
  if (::rename(path_.c_str(), target.c_str()) != 0) cannot("write", target);
  path_.clear();
}

bool TemporaryFile::take_free_name(const fs::path& target) {
  if (!rename_to_free(path_, target)) return false;
  path_.clear();
  return true;
}

int TemporaryFile::release() {
  check(path_.empty(), "TemporaryFile: released under its temporary name");
  return std::exchange(descriptor_, -1);
}

TemporaryDirectory::TemporaryDirectory(const fs::path& target)
    : lock_(make_under_new_name(target, path_, make_locked)) {
  if (lock_ < 0) cannot("create the directory", target);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  ::close(lock_);
}

bool TemporaryDirectory::take_free_name(const fs::path& target) {
  if (!rename_to_free(path_, target)) return false;
  path_.clear();
  return true;
}

// Exchanged, so that there is one at any time; where the file system cannot, the old one steps aside first, and comes
// back if the new one cannot take its place.
void TemporaryDirectory::replace(const fs::path& target) {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) cannot("replace", target);
  const fs::path aside = temporary_name(target);
  if (::rename(target.c_str(), aside.c_str()) != 0) cannot("replace", target);
  if (::rename(path_.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    ::rename(aside.c_str(), target.c_str());
    errno = reason;
    cannot("replace", target);
  }
  path_ = aside;
}

void remove_leftovers(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? fs::path(".") : folder, ignored)) {
    if (!is_temporary_name(entry.path().filename().string())) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), ignored);
    ::close(file);
  }
}

}  // namespace espalier

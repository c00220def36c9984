// A file mapped read-only into memory. Movable, not copyable; spans into it are valid while it lives.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

class MappedFile {
 public:
  // Throws InputError naming the path when it cannot be opened or is not a regular file. An empty file maps to an
  // empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Takes the pages that lie wholly inside `part` out of this process's memory. They stay readable: the next read
  // brings them back. A part of another file is left alone.
  void release(std::span<const std::byte> part) const noexcept;

 private:
  void unmap() noexcept;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The whole file as text. Throws InputError naming the path, also when it is larger than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes = std::size_t{1} << 30);

}  // namespace espalier

#include "format/gguf_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "format/gguf_cursor.h"
#include "format/gguf_encode.h"
#include "format/gguf_metadata.h"

namespace espalier {
namespace {

// Tensors follow each other, each at the next multiple of the alignment.
std::vector<GgufTensorEntry> lay_out(const GgufPlan& plan) {
  std::vector<GgufTensorEntry> entries;
  std::uint64_t offset = 0;
  for (const GgufTensorPlan& tensor : plan.tensors) {
    entries.push_back(
        {tensor.name, {tensor.shape.rbegin(), tensor.shape.rend()}, gguf_type_number(tensor.type), offset});
    offset = gguf_aligned(offset + tensor.bytes(), plan.alignment);
  }
  return entries;
}

std::string encode_head(const GgufPlan& plan) {
  std::string metadata;
  for (const GgufEntry& entry : plan.metadata) metadata += entry.bytes;
  return gguf_head({.tensor_count = plan.tensors.size(), .key_count = plan.metadata.size(), .metadata = metadata},
                   lay_out(plan));
}

// Beside the file, so that renaming is one step; with our process id, so that two programs do not meet.
std::filesystem::path temporary_name(const std::filesystem::path& path) {
  return path.string() + fmt::format(".{}.partial", ::getpid());
}

}  // namespace

std::vector<GgufEntry> read_gguf_entries(std::span<const std::byte> bytes, std::string_view path) {
  GgufCursor cursor(bytes, path);
  for (int skipped = 0; skipped < 2; ++skipped) cursor.number<std::uint32_t>();  // magic, version
  cursor.number<std::uint64_t>();                                                // tensors
  const auto count = cursor.number<std::uint64_t>();
  std::vector<GgufEntry> entries;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t begin = cursor.position();
    const GgufMetadata one = read_gguf_metadata(cursor, 1);
    entries.push_back({one.begin()->first, bytes_of(bytes.subspan(begin, cursor.position() - begin))});
  }
  return entries;
}

std::uint64_t GgufTensorPlan::bytes() const {
  std::int64_t size = row_bytes(type, shape.back());
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) size *= shape[i];
  return static_cast<std::uint64_t>(size);
}

GgufWriter::GgufWriter(std::filesystem::path path, const GgufPlan& plan)
    : path_(std::move(path)), temporary_(temporary_name(path_)), alignment_(plan.alignment) {
  for (const GgufTensorPlan& tensor : plan.tensors) sizes_.push_back(tensor.bytes());
  const std::string head = encode_head(plan);
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail("cannot write");
  try {
    write(head);
    pad();
  } catch (...) {
    ::close(file_);
    ::unlink(temporary_.c_str());
    throw;
  }
}

GgufWriter::~GgufWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void GgufWriter::tensor(std::span<const std::byte> data) {
  check(next_ < sizes_.size() && data.size() == sizes_[next_], "GgufWriter: {} bytes for tensor {} of {}", data.size(),
        next_, sizes_.size());
  ++next_;
  write({reinterpret_cast<const char*>(data.data()), data.size()});
  pad();
}

void GgufWriter::finish() {
  check(file_ >= 0 && next_ == sizes_.size(), "GgufWriter: finished after {} of {} tensors", next_, sizes_.size());
  // Some file systems tell only now that the disk is full.
  if (::fsync(file_) != 0) fail("cannot write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename the finished file");
  ::close(std::exchange(file_, -1));
}

void GgufWriter::write(std::string_view bytes) {
  written_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write");
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

// The readers of other projects want the last tensor padded too.
void GgufWriter::pad() {
  write(std::string(gguf_aligned(written_, alignment_) - written_, '\0'));
}

void GgufWriter::fail(std::string_view action) const {
  device_error("{}: {}: {}", path_.string(), action, std::strerror(errno));
}

}  // namespace espalier

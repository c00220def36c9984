#include "format/gguf_writer.h"

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

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufPlan& plan, Existing existing)
    : file_(path, existing), alignment_(plan.alignment) {
  for (const GgufTensorPlan& tensor : plan.tensors) sizes_.push_back(tensor.bytes());
  write(encode_head(plan));
  pad();
}

void GgufWriter::tensor(std::span<const std::byte> data) {
  check(next_ < sizes_.size() && data.size() == sizes_[next_], "GgufWriter: {} bytes for tensor {} of {}", data.size(),
        next_, sizes_.size());
  ++next_;
  write({reinterpret_cast<const char*>(data.data()), data.size()});
  pad();
}

void GgufWriter::finish() {
  check(next_ == sizes_.size(), "GgufWriter: finished after {} of {} tensors", next_, sizes_.size());
  file_.finish();
}

void GgufWriter::write(std::string_view bytes) {
  written_ += bytes.size();
  file_.write(bytes);
}

// The readers of other projects want the last tensor padded too.
void GgufWriter::pad() {
  write(std::string(gguf_aligned(written_, alignment_) - written_, '\0'));
}

}  // namespace espalier

#include "format/testing/gguf_builder.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

void pad(std::string& bytes, std::size_t alignment) {
  bytes.resize(gguf_aligned(bytes.size(), alignment));
}

}  // namespace

GgufBuilder& GgufBuilder::set_encoded(std::string_view key, const GgufEncoded& value) {
  metadata_ += gguf_entry(key, value);
  ++keys_;
  return *this;
}

GgufBuilder& GgufBuilder::alignment(std::uint32_t alignment) {
  check(tensors_.empty(), "alignment must be chosen before the first tensor");
  alignment_ = alignment;
  return set("general.alignment", alignment);
}

GgufBuilder& GgufBuilder::tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape,
                                 std::string data) {
  check(!shape.empty(), "tensor {} needs a shape", name);
  std::int64_t expected = row_bytes(type, shape.back());
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) expected *= shape[i];
  check(static_cast<std::int64_t>(data.size()) == expected, "tensor {}: expected {} bytes, got {}", name, expected,
        data.size());
  return raw_tensor({.name = std::string(name),
                     .dimensions = {shape.rbegin(), shape.rend()},
                     .type = gguf_type_number(type),
                     .offset = std::nullopt,
                     .data = std::move(data)});
}

GgufBuilder& GgufBuilder::raw_tensor(RawTensor tensor) {
  pad(data_, alignment_);
  if (!tensor.offset) tensor.offset = data_.size();
  data_ += tensor.data;
  tensors_.push_back(std::move(tensor));
  return *this;
}

GgufBuilder& GgufBuilder::header(Header header) {
  header_ = std::move(header);
  return *this;
}

std::size_t GgufBuilder::metadata_begin() const {
  return header_.magic.size() + 4 + 8 + 8;
}

std::size_t GgufBuilder::tensors_begin() const {
  return metadata_begin() + metadata_.size();
}

std::size_t GgufBuilder::data_begin() const {
  std::string before = head();
  pad(before, alignment_);
  return before.size();
}

std::string GgufBuilder::head() const {
  std::vector<GgufTensorEntry> entries;
  for (const RawTensor& tensor : tensors_)
    entries.push_back({tensor.name, tensor.dimensions, tensor.type, *tensor.offset});
  return gguf_head({.magic = header_.magic,
                    .version = header_.version,
                    .tensor_count = header_.tensors.value_or(tensors_.size()),
                    .key_count = header_.keys.value_or(keys_),
                    .metadata = metadata_},
                   entries);
}

std::string GgufBuilder::bytes() const {
  std::string result = head();
  pad(result, alignment_);
  return result + data_;
}

void GgufBuilder::write(const std::filesystem::path& path) const {
  std::ofstream file(path, std::ios::binary);
  file << bytes();
  check(file.good(), "cannot write {}", path.string());
}

std::filesystem::path write_split_gguf(const std::filesystem::path& folder, std::string_view stem,
                                       std::vector<GgufBuilder> shards) {
  std::int32_t tensors = 0;
  for (const GgufBuilder& shard : shards) tensors += static_cast<std::int32_t>(shard.tensor_count());
  const auto path = [&](std::size_t i) {
    return folder / fmt::format("{}-{:05}-of-{:05}.gguf", stem, i + 1, shards.size());
  };
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i]
        .set("split.no", static_cast<std::uint16_t>(i))
        .set("split.count", static_cast<std::uint16_t>(shards.size()))
        .set("split.tensors.count", tensors)
        .write(path(i));
  return path(0);
}

}  // namespace espalier

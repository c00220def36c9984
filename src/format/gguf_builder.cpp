#include "format/gguf_builder.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

template <typename T>
void append(std::string& bytes, T value) {
  bytes += bytes_of<T>({value});
}

void pad(std::string& bytes, std::size_t alignment) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
}

}  // namespace

std::string gguf_text(std::string_view text) {
  return bytes_of<std::uint64_t>({text.size()}) + std::string(text);
}

GgufEncoded gguf_array(GgufType element_type, const std::vector<GgufEncoded>& elements) {
  GgufEncoded array{GgufType::array, {}};
  append(array.bytes, static_cast<std::uint32_t>(element_type));
  append<std::uint64_t>(array.bytes, elements.size());
  for (const GgufEncoded& element : elements) array.bytes += element.bytes;
  return array;
}

GgufBuilder& GgufBuilder::set_encoded(std::string_view key, const GgufEncoded& value) {
  metadata_ += gguf_text(key);
  append(metadata_, static_cast<std::uint32_t>(value.type));
  metadata_ += value.bytes;
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
  std::string bytes = header_.magic;
  append(bytes, header_.version);
  append<std::uint64_t>(bytes, header_.tensors.value_or(tensors_.size()));
  append<std::uint64_t>(bytes, header_.keys.value_or(keys_));
  bytes += metadata_;
  for (const RawTensor& tensor : tensors_) {
    bytes += gguf_text(tensor.name);
    append(bytes, static_cast<std::uint32_t>(tensor.dimensions.size()));
    bytes += bytes_of(tensor.dimensions);
    append(bytes, tensor.type);
    append(bytes, *tensor.offset);
  }
  return bytes;
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

std::uint32_t gguf_type_number(DType type) {
  switch (type) {
    case DType::f32: return 0;
    case DType::f16: return 1;
    case DType::bf16: return 30;
    case DType::q4_0: return 2;
    case DType::q4_1: return 3;
    case DType::q5_0: return 6;
    case DType::q5_1: return 7;
    case DType::q8_0: return 8;
    case DType::q4_k: return 12;
    case DType::q5_k: return 13;
    case DType::q6_k: return 14;
    case DType::i32: return 26;
    case DType::i64: return 27;
    case DType::u8: break;
  }
  check(false, "GGUF has no tensor type {}", name(type));
  return 0;
}

}  // namespace espalier

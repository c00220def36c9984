#include "format/gguf_encode.h"

#include "base/error.h"

namespace espalier {
namespace {

template <typename T>
void append(std::string& bytes, T value) {
  bytes += bytes_of<T>({value});
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

std::string gguf_entry(std::string_view key, const GgufEncoded& value) {
  std::string bytes = gguf_text(key);
  append(bytes, static_cast<std::uint32_t>(value.type));
  return bytes + value.bytes;
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
    case DType::u8:
    case DType::f64: break;
  }
  check(false, "GGUF has no tensor type {}", name(type));
  return 0;
}

std::string gguf_head(const GgufHead& head, std::span<const GgufTensorEntry> tensors) {
  std::string bytes(head.magic);
  append(bytes, head.version);
  append(bytes, head.tensor_count);
  append(bytes, head.key_count);
  bytes += head.metadata;
  for (const GgufTensorEntry& tensor : tensors) {
    bytes += gguf_text(tensor.name);
    append(bytes, static_cast<std::uint32_t>(tensor.dimensions.size()));
    bytes += bytes_of(tensor.dimensions);
    append(bytes, tensor.type);
    append(bytes, tensor.offset);
  }
  return bytes;
}

}  // namespace espalier

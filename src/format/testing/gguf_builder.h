// Writes GGUF v3 files for tests (library espalier_format_testing). Valid by default:
//
//   GgufBuilder()
//       .set("general.architecture", "llama")
//       .set("llama.block_count", 2u)
//       .set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"})
//       .tensor("output.weight", DType::f32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}))
//       .write(folder / "model.gguf");
//
// The calls under "lies" write what they are told, however wrong, for the tests of the reader. How the parts are
// spelled is gguf_encode.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "format/gguf_encode.h"

namespace espalier {

class GgufBuilder {
 public:
  template <typename T>
  GgufBuilder& set(std::string_view key, const T& value) {
    return set_encoded(key, gguf_encode(value));
  }
  GgufBuilder& set_encoded(std::string_view key, const GgufEncoded& value);
  // Writes general.alignment and lays the data out accordingly.
  GgufBuilder& alignment(std::uint32_t alignment);
  // Shape outermost first, as in TensorInfo. `data` must have exactly the bytes the shape needs.
  GgufBuilder& tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape, std::string data);
  std::size_t tensor_count() const { return tensors_.size(); }

  // Lies. raw_tensor's dimensions are innermost first, as in the file; without an offset the data is laid out after
  // the tensors before it.
  struct RawTensor {
    std::string name = "t";
    std::vector<std::uint64_t> dimensions = {1};
    std::uint32_t type = 0;
    std::optional<std::uint64_t> offset = std::nullopt;
    std::string data = {};
  };
  GgufBuilder& raw_tensor(RawTensor tensor);
  struct Header {
    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::optional<std::uint64_t> tensors = std::nullopt;  // the counts: true unless given
    std::optional<std::uint64_t> keys = std::nullopt;
  };
  GgufBuilder& header(Header header);

  // The file, and where its parts begin (for tests that cut it).
  std::string bytes() const;
  std::size_t metadata_begin() const;
  std::size_t tensors_begin() const;
  std::size_t data_begin() const;
  void write(const std::filesystem::path& path) const;

 private:
  std::string head() const;  // everything before the data section, without the padding

  Header header_;
  std::uint64_t keys_ = 0;
  std::string metadata_;
  std::uint64_t alignment_ = kDefaultGgufAlignment;
  std::vector<RawTensor> tensors_;  // every offset set
  std::string data_;
};

// Writes the shards STEM-00001-of-0000N.gguf with their split.* keys; returns the path of the first.
std::filesystem::path write_split_gguf(const std::filesystem::path& folder, std::string_view stem,
                                       std::vector<GgufBuilder> shards);

}  // namespace espalier

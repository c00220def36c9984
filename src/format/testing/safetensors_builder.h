// Writes safetensors files and sharded directories for tests (library espalier_format_testing). Valid by default:
//
//   SafetensorsBuilder()
//       .tensor("lm_head.weight", DType::f32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}))
//       .write(folder / "model.safetensors");
//
// The calls under "lies" write what they are told, however wrong, for the tests of the reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace espalier {

class SafetensorsBuilder {
 public:
  // `data` must have exactly the bytes the shape needs. Types that safetensors has: f32, f16, bf16, i64, i32, u8.
  SafetensorsBuilder& tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape,
                             std::string data);
  SafetensorsBuilder& metadata(std::string_view key, std::string_view value);
  const std::vector<std::string>& names() const { return names_; }

  // Lies: an entry of the header as JSON text ("\"t\": {...}"), bytes of data, the whole header, its length.
  SafetensorsBuilder& raw_entry(std::string json);
  SafetensorsBuilder& raw_data(std::string_view data);
  SafetensorsBuilder& raw_header(std::string json);
  SafetensorsBuilder& header_length(std::uint64_t length);

  std::string bytes() const;
  void write(const std::filesystem::path& path) const;

 private:
  std::string header() const;

  std::vector<std::string> names_;
  std::vector<std::string> entries_;
  std::vector<std::string> metadata_;
  std::string data_;
  std::optional<std::string> raw_header_;
  std::optional<std::uint64_t> header_length_;
};

// Writes model-0000I-of-0000N.safetensors and model.safetensors.index.json into the folder.
void write_sharded_safetensors(const std::filesystem::path& folder, const std::vector<SafetensorsBuilder>& shards);

}  // namespace espalier

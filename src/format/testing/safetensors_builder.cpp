#include "format/testing/safetensors_builder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "format/testing/gguf_builder.h"

namespace espalier {
namespace {

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump();
}

std::string dtype_name(DType type) {
  check(!is_block_quantised(type), "safetensors has no type {}", name(type));
  std::string upper(name(type));
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper;
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  check(file.good(), "cannot write {}", path.string());
}

}  // namespace

SafetensorsBuilder& SafetensorsBuilder::tensor(std::string_view name, DType type,
                                               const std::vector<std::int64_t>& shape, std::string data) {
  std::int64_t elements = 1;
  for (std::int64_t size : shape) elements *= size;
  check(static_cast<std::int64_t>(data.size()) == row_bytes(type, elements), "tensor {}: expected {} bytes, got {}",
        name, row_bytes(type, elements), data.size());
  names_.emplace_back(name);
  raw_entry(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_text(name), dtype_name(type),
                        fmt::join(shape, ","), data_.size(), data_.size() + data.size()));
  return raw_data(data);
}

SafetensorsBuilder& SafetensorsBuilder::metadata(std::string_view key, std::string_view value) {
  metadata_.push_back(json_text(key) + ":" + json_text(value));
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::raw_entry(std::string json) {
  entries_.push_back(std::move(json));
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::raw_data(std::string_view data) {
  data_ += data;
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::raw_header(std::string json) {
  raw_header_ = std::move(json);
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::header_length(std::uint64_t length) {
  header_length_ = length;
  return *this;
}

std::string SafetensorsBuilder::header() const {
  if (raw_header_) return *raw_header_;
  std::vector<std::string> parts = entries_;
  if (!metadata_.empty()) parts.push_back(fmt::format(R"("__metadata__":{{{}}})", fmt::join(metadata_, ",")));
  std::string text = fmt::format("{{{}}}", fmt::join(parts, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

std::string SafetensorsBuilder::bytes() const {
  const std::string text = header();
  return bytes_of<std::uint64_t>({header_length_.value_or(text.size())}) + text + data_;
}

void SafetensorsBuilder::write(const std::filesystem::path& path) const {
  write_bytes(path, bytes());
}

void write_sharded_safetensors(const std::filesystem::path& folder, const std::vector<SafetensorsBuilder>& shards) {
  nlohmann::json weight_map = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    shards[i].write(folder / name);
    for (const std::string& tensor : shards[i].names()) weight_map[tensor] = name;
  }
  const nlohmann::json index = {{"metadata", nlohmann::json::object()}, {"weight_map", weight_map}};
  write_bytes(folder / "model.safetensors.index.json", index.dump(2));
}

}  // namespace espalier

#include "format/safetensors_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/untrusted_text.h"
#include "format/tensor_table.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own library
constexpr std::size_t kMaxSafetensorsDimensions = 8;
constexpr std::string_view kMetadata = "__metadata__";

struct HeaderEntry {
  TensorInfo info;  // bytes not set yet
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::string_view header_text(std::span<const std::byte> bytes, std::string_view path) {
  static_assert(std::endian::native == std::endian::little);
  if (bytes.size() < kLengthBytes)
    input_error("{}: not a safetensors file: expected at least {} bytes, got {}", path, kLengthBytes, bytes.size());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    input_error("{}: not a safetensors file: expected a header of at most {} bytes, got {}", path, kMaxHeaderBytes,
                length);
  if (length > bytes.size() - kLengthBytes)
    input_error("{}: header of {} bytes ends past the file of {} bytes (truncated file?)", path, length, bytes.size());
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length};
}

DType dtype_of(const Json& value, std::string_view where) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16}, {"I64", DType::i64},
      {"I32", DType::i32}, {"U8", DType::u8},   {"BOOL", DType::u8}};
  if (!value.is_string()) input_error("{}: dtype: expected a string, got {}", where, value.type_name());
  const auto& text = value.get_ref<const std::string&>();
  for (const auto& [name, type] : kTypes)
    if (text == name) return type;
  input_error("{}: dtype {} is not supported, expected F32, F16, BF16, I64, I32, U8 or BOOL", where, in_quotes(text));
}

std::vector<std::uint64_t> unsigned_integers(const Json& value, std::string_view where, std::string_view field) {
  if (!value.is_array()) input_error("{}: {}: expected an array, got {}", where, field, value.type_name());
  std::vector<std::uint64_t> result;
  for (const Json& element : value) {
    if (!element.is_number_unsigned())
      input_error("{}: {}: expected integers from 0 on, got {}", where, field, in_quotes(element.dump()));
    result.push_back(element.get<std::uint64_t>());
  }
  return result;
}

const Json& field_of(const Json& entry, const char* field, std::string_view where) {
  const auto found = entry.find(field);
  if (found == entry.end()) input_error("{}: missing field \"{}\"", where, field);
  return *found;
}

HeaderEntry tensor_entry(const std::string& name, const Json& value, std::string_view path) {
  const std::string where = fmt::format("{}: tensor {}", path, in_quotes(name));
  if (!value.is_object()) input_error("{}: expected an object, got {}", where, value.type_name());
  HeaderEntry entry;
  entry.info.name = name;
  entry.info.type = dtype_of(field_of(value, "dtype", where), where);
  const auto shape = unsigned_integers(field_of(value, "shape", where), where, "shape");
  const auto offsets = unsigned_integers(field_of(value, "data_offsets", where), where, "data_offsets");
  if (value.size() != 3)
    input_error("{}: expected only dtype, shape and data_offsets, got {} fields", where, value.size());
  if (shape.size() > kMaxSafetensorsDimensions)
    input_error("{}: expected at most {} dimensions, got {}", where, kMaxSafetensorsDimensions, shape.size());
  if (offsets.size() != 2) input_error("{}: data_offsets: expected 2 numbers, got {}", where, offsets.size());
  entry.begin = offsets[0];
  entry.end = offsets[1];
  if (entry.begin > entry.end) input_error("{}: data_offsets: begin {} is after end {}", where, entry.begin, entry.end);
  const auto needed = static_cast<std::uint64_t>(checked_tensor_bytes(where, entry.info.type, shape));
  if (entry.end - entry.begin != needed)
    input_error("{}: data_offsets: expected {} bytes for its shape and dtype, got {}", where, needed,
                entry.end - entry.begin);
  entry.info.shape.assign(shape.begin(), shape.end());
  return entry;
}

void check_metadata(const Json& metadata, std::string_view path) {
  if (!metadata.is_object()) input_error("{}: {}: expected an object, got {}", path, kMetadata, metadata.type_name());
  for (const auto& [key, value] : metadata.items())
    if (!value.is_string())
      input_error("{}: {}: {}: expected a string, got {}", path, kMetadata, in_quotes(key), value.type_name());
}

std::vector<HeaderEntry> tensor_entries(const Json& header, std::string_view path) {
  if (!header.is_object()) input_error("{}: header: expected a JSON object, got {}", path, header.type_name());
  std::vector<HeaderEntry> entries;
  entries.reserve(header.size());
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata)
      check_metadata(value, path);
    else
      entries.push_back(tensor_entry(name, value, path));
  }
  return entries;
}

// The tensors in the order of their offsets must fill the data section exactly. No tensor is empty, so two that begin
// together overlap.
void check_layout(const std::vector<HeaderEntry>& entries, std::uint64_t data_size, std::string_view path) {
  std::vector<const HeaderEntry*> order;
  order.reserve(entries.size());
  for (const HeaderEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  std::uint64_t filled = 0;
  for (const HeaderEntry* entry : order) {
    const std::string where = fmt::format("{}: tensor {}", path, in_quotes(entry->info.name));
    if (entry->begin < filled)
      input_error("{}: overlaps the tensor before it: begins at {}, which ends at {}", where, entry->begin, filled);
    if (entry->begin > filled)
      input_error("{}: hole before it: begins at {}, the tensor before it ends at {}", where, entry->begin, filled);
    if (entry->end > data_size)
      input_error("{}: ends at {}, past the data section of {} bytes (truncated file?)", where, entry->end, data_size);
    filled = entry->end;
  }
  if (filled != data_size)
    input_error("{}: expected {} bytes of data for its tensors, got {}", path, filled, data_size);
}

}  // namespace

std::vector<TensorInfo> parse_safetensors(std::span<const std::byte> bytes, std::string_view path) {
  const std::string_view header = header_text(bytes, path);
  std::vector<HeaderEntry> entries = tensor_entries(parse_json(header, fmt::format("{}: header", path)), path);
  const auto data = bytes.subspan(kLengthBytes + header.size());
  check_layout(entries, data.size(), path);
  std::vector<TensorInfo> tensors;
  tensors.reserve(entries.size());
  for (HeaderEntry& entry : entries) {
    entry.info.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back(std::move(entry.info));
  }
  return tensors;
}

}  // namespace espalier

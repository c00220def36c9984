#include "format/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "format/gguf_cursor.h"
#include "format/gguf_metadata.h"
#include "format/tensor_table.h"

namespace espalier {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kMaxGgufDimensions = 4;
constexpr std::uint64_t kFewestTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name length, one letter, one dimension, ...
constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::int64_t kSmallestAlignment = 8;

struct Header {
  std::uint64_t tensors;
  std::uint64_t keys;
};

struct PlacedTensor {
  TensorInfo info;           // bytes not set yet
  std::uint64_t offset = 0;  // into the data section
  std::uint64_t size = 0;    // in bytes

  // Requires a size and an offset that were checked against the data section.
  std::uint64_t end() const { return offset + size; }
};

void check_magic(GgufCursor& cursor) {
  std::array<char, 4> bytes;
  for (char& byte : bytes) byte = cursor.number<char>();
  const std::string_view magic(bytes.data(), bytes.size());
  if (magic == "FUGG") cursor.fail("big-endian GGUF files are not supported");
  if (magic != "GGUF") cursor.fail("not a GGUF file: expected the magic \"GGUF\", got {}", in_quotes(magic));
}

void check_version(GgufCursor& cursor) {
  const auto version = cursor.number<std::uint32_t>();
  if (version == kVersion) return;
  if (version == 1 || version == 2)
    cursor.fail("GGUF version {} is not supported, expected version {}: convert the model again", version, kVersion);
  const bool swapped = (version & 0xFFFF) == 0;  // a small number with its bytes in the other order
  if (swapped && version != 0) cursor.fail("big-endian GGUF files are not supported");
  cursor.fail("unknown GGUF version {}, expected {}", version, kVersion);
}

Header read_header(GgufCursor& cursor) {
  check_magic(cursor);
  check_version(cursor);
  const auto tensors = cursor.number<std::uint64_t>();
  const auto keys = cursor.number<std::uint64_t>();
  return {.tensors = tensors, .keys = keys};
}

struct GgmlType {
  std::uint32_t number;
  std::string_view name;
  std::optional<DType> type;  // absent: known by name only
};

constexpr auto kNotSupported = std::nullopt;
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", DType::f32},
    {1, "F16", DType::f16},
    {2, "Q4_0", DType::q4_0},
    {3, "Q4_1", DType::q4_1},
    {4, "Q4_2", kNotSupported},
    {5, "Q4_3", kNotSupported},
    {6, "Q5_0", DType::q5_0},
    {7, "Q5_1", DType::q5_1},
    {8, "Q8_0", DType::q8_0},
    {9, "Q8_1", kNotSupported},
    {10, "Q2_K", kNotSupported},
    {11, "Q3_K", kNotSupported},
    {12, "Q4_K", DType::q4_k},
    {13, "Q5_K", DType::q5_k},
    {14, "Q6_K", DType::q6_k},
    {15, "Q8_K", kNotSupported},
    {16, "IQ2_XXS", kNotSupported},
    {17, "IQ2_XS", kNotSupported},
    {18, "IQ3_XXS", kNotSupported},
    {19, "IQ1_S", kNotSupported},
    {20, "IQ4_NL", kNotSupported},
    {21, "IQ3_S", kNotSupported},
    {22, "IQ2_S", kNotSupported},
    {23, "IQ4_XS", kNotSupported},
    {24, "I8", kNotSupported},
    {25, "I16", kNotSupported},
    {26, "I32", DType::i32},
    {27, "I64", DType::i64},
    {28, "F64", kNotSupported},
    {29, "IQ1_M", kNotSupported},
    {30, "BF16", DType::bf16},
    {31, "Q4_0_4_4", kNotSupported},
    {32, "Q4_0_4_8", kNotSupported},
    {33, "Q4_0_8_8", kNotSupported},
    {34, "TQ1_0", kNotSupported},
    {35, "TQ2_0", kNotSupported},
    {36, "IQ4_NL_4_4", kNotSupported},
    {37, "IQ4_NL_4_8", kNotSupported},
    {38, "IQ4_NL_8_8", kNotSupported},
    {39, "MXFP4", kNotSupported},
    {40, "NVFP4", kNotSupported},
    {41, "Q1_0", kNotSupported},
};
constexpr std::string_view kSupportedTypes = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, I32, I64";

DType read_tensor_type(GgufCursor& cursor) {
  const auto number = cursor.number<std::uint32_t>();
  const auto known = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                  [&](const GgmlType& type) { return type.number == number; });
  if (known == std::end(kGgmlTypes)) cursor.fail("unknown tensor type {}, expected one of {}", number, kSupportedTypes);
  if (!known->type)
    cursor.fail("tensor type {} ({}) is not supported, expected one of {}", known->name, number, kSupportedTypes);
  return *known->type;
}

// Outermost first.
std::vector<std::uint64_t> read_dimensions(GgufCursor& cursor) {
  const auto count = cursor.number<std::uint32_t>();
  if (count < 1 || count > kMaxGgufDimensions)
    cursor.fail("expected 1 to {} dimensions, got {}", kMaxGgufDimensions, count);
  std::vector<std::uint64_t> dimensions(count);
  for (std::size_t i = count; i-- > 0;) dimensions[i] = cursor.number<std::uint64_t>();
  return dimensions;
}

PlacedTensor read_tensor_entry(GgufCursor& cursor, std::string_view path) {
  PlacedTensor entry;
  entry.info.name = read_gguf_name(cursor);
  const std::string part = fmt::format("tensor {}", in_quotes(entry.info.name));
  cursor.enter(part);
  const std::vector<std::uint64_t> dimensions = read_dimensions(cursor);
  entry.info.type = read_tensor_type(cursor);
  entry.offset = cursor.number<std::uint64_t>();
  entry.size =
      static_cast<std::uint64_t>(checked_tensor_bytes(fmt::format("{}: {}", path, part), entry.info.type, dimensions));
  entry.info.shape.assign(dimensions.begin(), dimensions.end());
  return entry;
}

std::vector<PlacedTensor> read_tensor_entries(GgufCursor& cursor, std::uint64_t count, std::string_view path) {
  cursor.enter("the tensor list");
  cursor.expect_room(count, kFewestTensorBytes, "tensors");
  std::vector<PlacedTensor> entries;
  entries.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    cursor.enter(fmt::format("tensor {} of {}", i + 1, count));
    entries.push_back(read_tensor_entry(cursor, path));
  }
  return entries;
}

std::uint64_t alignment_of(const GgufMetadata& metadata, std::string_view path) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return kDefaultAlignment;
  const auto* alignment = std::get_if<std::int64_t>(&found->second.data);
  if (alignment == nullptr)
    input_error("{}: key \"general.alignment\": expected an integer, got {}", path, kind_name(found->second));
  constexpr std::int64_t kLargest = std::numeric_limits<std::uint32_t>::max();
  if (*alignment < kSmallestAlignment || *alignment > kLargest ||
      !std::has_single_bit(static_cast<std::uint64_t>(*alignment)))
    input_error("{}: key \"general.alignment\": expected a power of two from {} on, got {}", path, kSmallestAlignment,
                *alignment);
  return static_cast<std::uint64_t>(*alignment);
}

void check_place(const PlacedTensor& entry, std::uint64_t alignment, std::uint64_t data_size, std::string_view path) {
  if (entry.offset % alignment != 0)
    input_error("{}: tensor {}: offset {} is not a multiple of the alignment {}", path, in_quotes(entry.info.name),
                entry.offset, alignment);
  if (entry.offset > data_size || entry.size > data_size - entry.offset)
    input_error("{}: tensor {}: {} bytes at offset {} end past the data section of {} bytes (truncated file?)", path,
                in_quotes(entry.info.name), entry.size, entry.offset, data_size);
}

void check_no_overlap(const std::vector<PlacedTensor>& entries, std::string_view path) {
  std::vector<const PlacedTensor*> order;
  order.reserve(entries.size());
  for (const PlacedTensor& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const PlacedTensor& before = *order[i - 1];
    const PlacedTensor& after = *order[i];
    if (before.end() > after.offset)
      input_error("{}: tensors {} and {} overlap: the first ends at offset {}, the second starts at {}", path,
                  in_quotes(before.info.name), in_quotes(after.info.name), before.end(), after.offset);
  }
}

}  // namespace

GgufFile parse_gguf(std::span<const std::byte> bytes, std::string_view path) {
  GgufCursor cursor(bytes, path);
  const Header header = read_header(cursor);
  GgufFile file{.metadata = read_gguf_metadata(cursor, header.keys), .tensors = {}};
  std::vector<PlacedTensor> entries = read_tensor_entries(cursor, header.tensors, path);

  const std::uint64_t alignment = alignment_of(file.metadata, path);
  const std::uint64_t data_start = (cursor.position() + alignment - 1) / alignment * alignment;
  const auto data = bytes.subspan(std::min<std::uint64_t>(data_start, bytes.size()));
  for (const PlacedTensor& entry : entries) check_place(entry, alignment, data.size(), path);
  check_no_overlap(entries, path);

  file.tensors.reserve(entries.size());
  for (PlacedTensor& entry : entries) {
    entry.info.bytes = data.subspan(entry.offset, entry.size);
    file.tensors.push_back(std::move(entry.info));
  }
  return file;
}

}  // namespace espalier

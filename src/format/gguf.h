// A GGUF v3 file, or a set of split files, mapped read-only: metadata and tensors. Nothing in the file is believed:
// every count, length, offset and shape is checked before it is used, and a lie throws InputError with the path, the
// key or tensor, what was expected and what was found. Immutable after construction.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "format/tensor_info.h"

namespace espalier {

// A metadata value. Integers of every width become int64 (uint64 above its range is refused), floats become double.
// Strings are bytes as stored; only keys and tensor names are promised to be UTF-8. An array of arrays is a GgufArray.
struct GgufValue;
using GgufArray = std::vector<GgufValue>;
struct GgufValue {
  std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>, std::vector<double>,
               std::vector<bool>, std::vector<std::string>, GgufArray>
      data;

  bool operator==(const GgufValue&) const = default;
};

using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

class Gguf final : public TensorSource {
 public:
  // Opens FILE, and if it is the first of a split set (NAME-00001-of-0000N.gguf, split.count) all the others. The
  // metadata is that of the first; what the others repeat must be equal.
  explicit Gguf(const std::filesystem::path& path);

  const GgufMetadata& metadata() const { return metadata_; }
  // Typed look-ups: absent gives nullopt (or nullptr), present with another type throws InputError.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // an integer is accepted
  std::optional<bool> boolean(std::string_view key) const;
  const std::string* string(std::string_view key) const;
  const std::vector<std::string>* strings(std::string_view key) const;
  const std::vector<std::int64_t>* integers(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;

  const TensorInfo* find(std::string_view name) const override;
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::string_view description() const override { return description_; }
  void release(const TensorInfo& info) const override {
    for (const MappedFile& file : files_) file.release(info.bytes);
  }

 private:
  void add_shard(const std::filesystem::path& path, std::int64_t number, std::int64_t count);

  std::string description_;
  std::vector<MappedFile> files_;
  GgufMetadata metadata_;
  std::vector<TensorInfo> tensors_;  // sorted by name
};

}  // namespace espalier

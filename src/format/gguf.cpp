#include "format/gguf.h"

#include <fmt/format.h>

#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "format/gguf_file.h"
#include "format/gguf_metadata.h"
#include "format/tensor_table.h"

namespace espalier {
namespace {

constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";
constexpr std::int64_t kMaxShards = 65535;  // split.count is a u16

template <typename T>
const T* find_typed(const GgufMetadata& metadata, std::string_view where, std::string_view key,
                    std::string_view expected) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second.data);
  if (value == nullptr)
    input_error("{}: key {}: expected {}, got {}", where, in_quotes(key), expected, kind_name(found->second));
  return value;
}

template <typename T>
std::optional<T> optional_of(const T* value) {
  return value == nullptr ? std::nullopt : std::optional<T>(*value);
}

const std::int64_t* find_integer(const GgufMetadata& metadata, std::string_view where, std::string_view key) {
  return find_typed<std::int64_t>(metadata, where, key, "integer");
}

void expect_integer(const GgufMetadata& metadata, std::string_view where, std::string_view key, std::int64_t expected) {
  const std::int64_t* value = find_integer(metadata, where, key);
  if (value == nullptr) input_error("{}: key {}: expected {}, but the key is missing", where, in_quotes(key), expected);
  if (*value != expected) input_error("{}: key {}: expected {}, got {}", where, in_quotes(key), expected, *value);
}

// "-00002-of-00005.gguf"; numbers start at 0 in split.no and at 1 in names.
std::string shard_suffix(std::int64_t number, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

// The path of another shard of the set that `path` belongs to; nothing if `path` is not named like shard `number`.
std::optional<std::filesystem::path> sibling(const std::filesystem::path& path, std::int64_t number, std::int64_t other,
                                             std::int64_t count) {
  const std::string name = path.filename().string();
  const std::string suffix = shard_suffix(number, count);
  if (!name.ends_with(suffix)) return std::nullopt;
  return path.parent_path() / (name.substr(0, name.size() - suffix.size()) + shard_suffix(other, count));
}

// How many files the model has; 1 when it is not split. Throws unless this is the first of them.
std::int64_t shard_count(const GgufMetadata& metadata, const std::filesystem::path& path) {
  const std::string where = path.string();
  const std::int64_t count = optional_of(find_integer(metadata, where, kSplitCount)).value_or(0);
  const std::int64_t number = optional_of(find_integer(metadata, where, kSplitNumber)).value_or(0);
  if (count < 0 || count > kMaxShards)
    input_error("{}: key \"{}\": expected 0 to {}, got {}", where, kSplitCount, kMaxShards, count);
  if (count <= 1) {  // the tool that joins a split set leaves the keys behind, with a count of 0
    if (number != 0)
      input_error("{}: key \"{}\": expected 0 in a model of one file, got {}", where, kSplitNumber, number);
    return 1;
  }
  if (number < 0 || number >= count)
    input_error("{}: key \"{}\": expected 0 to {}, got {}", where, kSplitNumber, count - 1, number);
  if (number != 0) {
    const auto first = sibling(path, number, 0, count);
    input_error("{}: this is shard {} of {}, open the first one{}{}", where, number + 1, count, first ? ": " : "",
                first ? first->string() : "");
  }
  return count;
}

// What a later shard repeats of the metadata must be what the first one says.
void check_agreement(const GgufMetadata& first, const GgufMetadata& later, std::string_view where) {
  for (const auto& [key, value] : later) {
    if (key == kSplitNumber || key == "general.alignment") continue;
    const auto found = first.find(key);
    if (found == first.end()) input_error("{}: key {} is not in the first shard", where, in_quotes(key));
    if (found->second != value) input_error("{}: key {} differs from the first shard", where, in_quotes(key));
  }
}

void append(std::vector<TensorInfo>& tensors, std::vector<TensorInfo> more) {
  tensors.insert(tensors.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

Gguf::Gguf(const std::filesystem::path& path) : description_(path.string()) {
  files_.emplace_back(path);
  GgufFile first = parse_gguf(files_.back().bytes(), description_);
  metadata_ = std::move(first.metadata);
  tensors_ = std::move(first.tensors);

  const std::int64_t count = shard_count(metadata_, path);
  for (std::int64_t number = 1; number < count; ++number) {
    const auto shard = sibling(path, 0, number, count);
    if (!shard)
      input_error("{}: first of {} shards: expected a name ending in {}", description_, count, shard_suffix(0, count));
    add_shard(*shard, number, count);
  }
  if (count > 1 || metadata_.contains(kSplitTensors))
    expect_integer(metadata_, description_, kSplitTensors, static_cast<std::int64_t>(tensors_.size()));
  sort_by_name(description_, tensors_);
}

void Gguf::add_shard(const std::filesystem::path& path, std::int64_t number, std::int64_t count) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    input_error("{}: shard {} of {} is missing: no file {}", description_, number + 1, count, path.string());
  files_.emplace_back(path);
  const std::string where = path.string();
  GgufFile shard = parse_gguf(files_.back().bytes(), where);
  expect_integer(shard.metadata, where, kSplitNumber, number);
  expect_integer(shard.metadata, where, kSplitCount, count);
  check_agreement(metadata_, shard.metadata, where);
  append(tensors_, std::move(shard.tensors));
}

std::optional<std::int64_t> Gguf::integer(std::string_view key) const {
  return optional_of(find_integer(metadata_, description_, key));
}

std::optional<double> Gguf::number(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end() && std::holds_alternative<std::int64_t>(found->second.data))
    return static_cast<double>(std::get<std::int64_t>(found->second.data));
  return optional_of(find_typed<double>(metadata_, description_, key, "number"));
}

std::optional<bool> Gguf::boolean(std::string_view key) const {
  return optional_of(find_typed<bool>(metadata_, description_, key, "bool"));
}

const std::string* Gguf::string(std::string_view key) const {
  return find_typed<std::string>(metadata_, description_, key, "string");
}

const std::vector<std::string>* Gguf::strings(std::string_view key) const {
  return find_typed<std::vector<std::string>>(metadata_, description_, key, "array of strings");
}

const std::vector<std::int64_t>* Gguf::integers(std::string_view key) const {
  return find_typed<std::vector<std::int64_t>>(metadata_, description_, key, "array of integers");
}

const std::vector<double>* Gguf::numbers(std::string_view key) const {
  return find_typed<std::vector<double>>(metadata_, description_, key, "array of numbers");
}

const TensorInfo* Gguf::find(std::string_view name) const {
  return find_by_name(tensors_, name);
}

}  // namespace espalier

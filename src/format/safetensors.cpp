#include "format/safetensors.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/untrusted_text.h"
#include "format/safetensors_file.h"
#include "format/tensor_table.h"

namespace espalier {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 28;

using TensorNames = std::vector<std::string>;

bool is_present(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// A plain file name: the index may not reach outside its directory.
bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

const std::string& shard_name(const std::string& tensor, const nlohmann::json& value, std::string_view where) {
  if (!value.is_string())
    input_error("{}: weight_map: {}: expected a file name, got {}", where, in_quotes(tensor), value.type_name());
  const auto& name = value.get_ref<const std::string&>();
  if (!is_file_name(name))
    input_error("{}: weight_map: {}: expected a file name without folders, got {}", where, in_quotes(tensor),
                in_quotes(name));
  return name;
}

// Shard file name -> the tensors it must hold, in name order.
std::map<std::string, TensorNames> read_weight_map(const std::filesystem::path& path) {
  const std::string where = path.string();
  const nlohmann::json index = read_json_file(path);
  if (!index.is_object()) input_error("{}: expected a JSON object, got {}", where, index.type_name());
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object() || weight_map->empty())
    input_error("{}: expected \"weight_map\", an object that names the shard of every tensor", where);
  std::map<std::string, TensorNames> shards;
  for (const auto& [tensor, shard] : weight_map->items()) shards[shard_name(tensor, shard, where)].push_back(tensor);
  return shards;
}

// Both in name order.
void check_same_names(const TensorNames& expected, const std::vector<TensorInfo>& found, std::string_view index,
                      std::string_view shard) {
  std::size_t i = 0;
  for (const TensorInfo& tensor : found) {
    if (i < expected.size() && expected[i] < tensor.name) break;
    if (i == expected.size() || expected[i] != tensor.name)
      input_error("{}: tensor {} is not listed for this shard in {}", shard, in_quotes(tensor.name), index);
    ++i;
  }
  if (i < expected.size())
    input_error("{}: tensor {} is missing, {} says it is here", shard, in_quotes(expected[i]), index);
}

}  // namespace

Safetensors::Safetensors(const std::filesystem::path& path) : description_(path.string()) {
  if (!is_folder(path) || is_present(path / kSingleFile)) {
    files_.emplace_back(is_folder(path) ? path / kSingleFile : path);
    tensors_ = parse_safetensors(files_.back().bytes(), files_.back().path().string());
  } else if (is_present(path / kIndexFile)) {
    open_sharded(path / kIndexFile);
  } else {
    input_error("{}: expected {} or {} in this folder", description_, kSingleFile, kIndexFile);
  }
  sort_by_name(description_, tensors_);
}

void Safetensors::open_sharded(const std::filesystem::path& index) {
  for (const auto& [name, tensors] : read_weight_map(index)) {
    const std::filesystem::path shard = index.parent_path() / name;
    if (!is_present(shard)) input_error("{}: shard is missing: no file {}", index.string(), in_quotes(shard.string()));
    files_.emplace_back(shard);
    std::vector<TensorInfo> found = parse_safetensors(files_.back().bytes(), shard.string());
    check_same_names(tensors, found, index.string(), shard.string());
    for (TensorInfo& tensor : found) tensors_.push_back(std::move(tensor));
  }
}

const TensorInfo* Safetensors::find(std::string_view name) const {
  return find_by_name(tensors_, name);
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_text_file(path, kMaxJsonBytes), path.string());
}

}  // namespace espalier

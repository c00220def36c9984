#include "engine/model_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/sha256.h"
#include "engine/cache_file.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kChunk = std::size_t{1} << 20;

std::string hash_of_text(std::string_view text) {
  return sha256(std::as_bytes(std::span(text)));
}

// "-00001-of-00003.gguf"
std::string shard_ending(int number, int count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

// The file, or all of a split set of which it is the first.
std::vector<fs::path> gguf_files(const fs::path& first) {
  const std::string name = first.filename().string();
  const std::size_t ending = shard_ending(1, 1).size();
  int count = 0;
  if (name.size() > ending) std::from_chars(name.data() + name.size() - 10, name.data() + name.size() - 5, count);
  if (count < 2 || !name.ends_with(shard_ending(1, count))) return {first};
  std::vector<fs::path> files;
  for (int number = 1; number <= count; ++number) {
    files.push_back(first.parent_path() / (name.substr(0, name.size() - ending) + shard_ending(number, count)));
    std::error_code error;
    if (!fs::exists(files.back(), error)) return {first};  // a file that is only named like one
  }
  return files;
}

// The GGUF file or files, or the shards of a Hugging Face folder by name.
std::vector<fs::path> weight_files(const fs::path& model) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return gguf_files(model);
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(model, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) files.push_back(entry->path());
  }
  std::ranges::sort(files);
  return files;
}

std::optional<std::string> read_and_hash(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  Sha256 hash;
  std::vector<char> chunk(kChunk);
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    hash.update(std::as_bytes(std::span(chunk).first(static_cast<std::size_t>(file.gcount()))));
  }
  if (file.bad()) return std::nullopt;
  return hash.finish();
}

// What a file is without reading it; nothing where that cannot be told.
std::optional<Json> identity(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  if (error) return std::nullopt;
  const auto bytes = fs::file_size(whole, error);
  if (error) return std::nullopt;
  const auto changed = fs::last_write_time(whole, error).time_since_epoch();
  if (error) return std::nullopt;
  return Json{{"path", whole.string()},
              {"bytes", bytes},
              {"changed_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(changed).count()}};
}

bool is_sha256(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().size() == 64;
}

std::optional<std::string> file_sha256(const fs::path& path, const std::optional<fs::path>& cache_folder) {
  const auto key = identity(path);
  if (!key || !cache_folder) return read_and_hash(path);
  // One file for each path: what another version left there is replaced.
  const fs::path cached = *cache_folder / ("sha256-" + hash_of_text(key_text((*key)["path"])).substr(0, 16) + ".json");
  if (const auto known = read_cache_file(cached))
    if (known->is_object() && known->contains("file") && key_text((*known)["file"]) == key_text(*key) &&
        known->contains("sha256") && is_sha256((*known)["sha256"]))
      return (*known)["sha256"];
  const auto hash = read_and_hash(path);
  if (hash) write_cache_file(cached, {{"file", *key}, {"sha256", *hash}});
  return hash;
}

// Of names and hashes of files, by name.
std::optional<std::string> hash_of_files(std::vector<fs::path> files, const std::optional<fs::path>& cache_folder) {
  std::ranges::sort(files);
  std::string joined;
  for (const fs::path& file : files) {
    const auto hash = file_sha256(file, cache_folder);
    if (!hash) return std::nullopt;
    joined += file.filename().string() + "\n" + *hash + "\n";
  }
  return hash_of_text(joined);
}

template <typename Wanted>
std::vector<fs::path> files_in(const fs::path& folder, const Wanted& wanted) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_regular_file(error) && wanted(entry->path())) files.push_back(entry->path());
  return files;
}

}  // namespace

std::optional<std::int64_t> model_bytes(const fs::path& model) {
  std::int64_t sum = 0;
  for (const fs::path& file : weight_files(model)) {
    std::error_code error;
    sum += static_cast<std::int64_t>(fs::file_size(file, error));
    if (error) return std::nullopt;
  }
  return sum;
}

std::optional<std::string> model_sha256(const fs::path& model, const std::optional<fs::path>& cache_folder) {
  std::string joined;
  const std::vector<fs::path> files = weight_files(model);
  for (const fs::path& file : files) {
    const auto hash = file_sha256(file, cache_folder);
    if (!hash) return std::nullopt;
    if (files.size() == 1) return hash;
    joined += (joined.empty() ? "" : "\n") + *hash;
  }
  return hash_of_text(joined);
}

std::optional<std::string> folder_sha256(const fs::path& path, const std::optional<fs::path>& cache_folder) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return file_sha256(path, cache_folder);
  return hash_of_files(files_in(path, [](const fs::path&) { return true; }), cache_folder);
}

std::optional<std::string> text_sha256(const fs::path& model, const std::optional<fs::path>& cache_folder) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return file_sha256(model, cache_folder);
  const auto is_text = [](const fs::path& file) {
    return file.extension() != ".safetensors" && file.extension() != ".bin";
  };
  return hash_of_files(files_in(model, is_text), cache_folder);
}

std::optional<std::string> tokenizer_sha256(const fs::path& model, const std::optional<fs::path>& cache_folder) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return model_sha256(model, cache_folder);
  const auto is_tokenizer = [](const fs::path& file) {
    const std::string name = file.filename().string();
    return name == "tokenizer.json" || name == "tokenizer.model" || name == "tokenizer_config.json";
  };
  return hash_of_files(files_in(model, is_tokenizer), cache_folder);
}

std::optional<std::string> configuration_sha256(const fs::path& model, const std::optional<fs::path>& cache_folder) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return "";
  return file_sha256(model / "config.json", cache_folder);
}

}  // namespace espalier

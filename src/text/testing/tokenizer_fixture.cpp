#include "text/testing/tokenizer_fixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

struct Expected {
  std::uint64_t hash[2];  // control tokens recognised, not recognised
};

std::vector<Expected> read_hashes(const std::filesystem::path& path, std::size_t count) {
  const std::string bytes = read_text_file(path);
  check(bytes.size() == count * sizeof(Expected), "{}: {} bytes for {} strings", path.string(), bytes.size(), count);
  std::vector<Expected> expected(count);
  std::memcpy(expected.data(), bytes.data(), bytes.size());
  return expected;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  return parse_json(read_text_file(path), path.string());
}

}  // namespace

std::filesystem::path tokenizer_folder(std::string_view name) {
  return std::filesystem::path(ESPALIER_TEST_DATA) / "tokenizers" / name;
}

std::vector<std::string> tokenizer_strings() {
  return read_json(tokenizer_folder("strings.json")).get<std::vector<std::string>>();
}

std::string differences_to(std::string_view name, const Tokenizer& tokenizer) {
  const std::vector<std::string> strings = tokenizer_strings();
  const std::vector<Expected> expected = read_hashes(tokenizer_folder(name) / "ids.bin", strings.size());
  const nlohmann::json in_full = read_json(tokenizer_folder(name) / "ids.json");
  std::string differences;
  int count = 0;
  for (std::size_t i = 0; i < strings.size(); i += kStringStep) {
    for (const bool allow_special : {true, false}) {
      const std::size_t column = allow_special ? 0 : 1;
      const std::vector<TokenId> ids = tokenizer.encode(strings[i], allow_special);
      if (hash_ids(ids) == expected[i].hash[column]) continue;
      if (++count > 10) continue;
      differences += fmt::format("string {} {} special={}: got {}", i, in_quotes(strings[i]), allow_special, ids);
      if (i < in_full.size()) differences += ", expected " + in_full[i][column].dump();
      differences += '\n';
    }
  }
  if (count > 0) differences += fmt::format("{} differences in {} strings", count, strings.size());
  return differences;
}

std::uint64_t hash_ids(const std::vector<TokenId>& ids) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (static_cast<std::uint32_t>(id) >> shift & 0xFF)) * 0x100000001B3u;
    }
  }
  return hash;
}

}  // namespace espalier

#include "engine/model_hash.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "engine/cache_file.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

std::string hash_of(const std::string& text) {
  return sha256(std::as_bytes(std::span(text)));
}

class ModelHashTest : public ::testing::Test {
 protected:
  // The only file of the cache.
  fs::path cached() const { return fs::directory_iterator(cache_)->path(); }

  TemporaryFolder folder_;
  const fs::path cache_ = folder_.path() / "cache";
};

TEST_F(ModelHashTest, IsThatOfTheFile) {
  const fs::path model = folder_.write("m.gguf", std::string(3'000'001, 'x'));
  EXPECT_EQ(model_sha256(model, std::nullopt), hash_of(std::string(3'000'001, 'x')));
  EXPECT_EQ(model_bytes(model), 3'000'001);
  EXPECT_EQ(model_sha256(folder_ / "missing", cache_), std::nullopt);
  EXPECT_EQ(model_bytes(folder_ / "missing"), std::nullopt);
}

TEST_F(ModelHashTest, OfAFolderIsThatOfItsShards) {
  fs::create_directory(folder_ / "hf");
  folder_.write("hf/model-00001.safetensors", "a");
  EXPECT_EQ(model_sha256(folder_ / "hf", cache_), hash_of("a"));
  folder_.write("hf/model-00002.safetensors", "bc");
  folder_.write("hf/config.json", "{}");
  EXPECT_EQ(model_sha256(folder_ / "hf", cache_), hash_of(hash_of("a") + "\n" + hash_of("bc")));
  EXPECT_EQ(model_bytes(folder_ / "hf"), 3);
}

TEST_F(ModelHashTest, OfASplitModelIsThatOfItsShards) {
  const fs::path first = folder_.write("m-00001-of-00002.gguf", "a");
  EXPECT_EQ(model_sha256(first, cache_), hash_of("a")) << "only named like one";
  folder_.write("m-00002-of-00002.gguf", "bc");
  const std::string both = hash_of(hash_of("a") + "\n" + hash_of("bc"));
  EXPECT_EQ(model_sha256(first, cache_), both);
  EXPECT_EQ(tokenizer_sha256(first, cache_), both);
  EXPECT_EQ(model_bytes(first), 3);
  EXPECT_EQ(model_sha256(folder_.write("-of-00002.gguf", "d"), cache_), hash_of("d"));
  EXPECT_EQ(model_sha256(folder_.write("gguf", "e"), cache_), hash_of("e"));
}

TEST_F(ModelHashTest, OfTokenizerAndConfigurationIsThatOfTheirFiles) {
  fs::create_directory(folder_ / "hf");
  folder_.write("hf/config.json", "{}");
  folder_.write("hf/tokenizer.json", "[]");
  const auto before = tokenizer_sha256(folder_ / "hf", cache_);
  EXPECT_EQ(before, hash_of("tokenizer.json\n" + hash_of("[]") + "\n"));
  EXPECT_EQ(configuration_sha256(folder_ / "hf", cache_), hash_of("{}"));
  folder_.write("hf/README.md", "words");
  EXPECT_EQ(tokenizer_sha256(folder_ / "hf", cache_), before) << "no token depends on them";
  folder_.write("hf/tokenizer_config.json", "{}");
  EXPECT_NE(tokenizer_sha256(folder_ / "hf", cache_), before);
  const fs::path file = folder_.write("m.gguf", "a");
  EXPECT_EQ(tokenizer_sha256(file, cache_), hash_of("a"));
  EXPECT_EQ(configuration_sha256(file, cache_), "");
}

TEST_F(ModelHashTest, OfAHeadCountsEveryFileAndItsName) {
  fs::create_directory(folder_ / "head");
  const auto hash = [&] { return folder_sha256(folder_ / "head", cache_); };
  EXPECT_EQ(folder_sha256(folder_.write("head.gguf", "a"), cache_), hash_of("a"));
  folder_.write("head/config.json", "{}");
  const auto before = hash();
  const fs::path weights = folder_.write("head/medusa.safetensors", "a");
  const auto whole = hash();
  EXPECT_NE(whole, before);
  fs::rename(weights, folder_ / "head/other.safetensors");
  EXPECT_NE(hash(), whole);
}

TEST_F(ModelHashTest, OfTextsLeavesTheWeightsOut) {
  fs::create_directory(folder_ / "hf");
  folder_.write("hf/tokenizer.json", "{}");
  folder_.write("hf/model.safetensors", "a");
  const auto before = text_sha256(folder_ / "hf", cache_);
  folder_.write("hf/model.safetensors", "other");
  EXPECT_EQ(text_sha256(folder_ / "hf", cache_), before);
  folder_.write("hf/tokenizer.json", "{ }");
  EXPECT_NE(text_sha256(folder_ / "hf", cache_), before);
  EXPECT_EQ(text_sha256(folder_.write("m.gguf", "a"), cache_), hash_of("a"));
}

TEST_F(ModelHashTest, IsKeptUntilTheFileChanges) {
  const fs::path model = folder_.write("m", "one");
  EXPECT_EQ(model_sha256(model, cache_), hash_of("one"));
  auto known = *read_cache_file(cached());
  known["sha256"] = std::string(64, 'f');
  ASSERT_TRUE(write_cache_file(cached(), known));
  EXPECT_EQ(model_sha256(model, cache_), std::string(64, 'f')) << "what is known is not computed again";
  folder_.write("m", "two");
  fs::last_write_time(model, fs::last_write_time(model) + std::chrono::nanoseconds(1000));
  EXPECT_EQ(model_sha256(model, cache_), hash_of("two")) << "of the same size, changed a moment later";
  folder_.write("m", "three");
  EXPECT_EQ(model_sha256(model, cache_), hash_of("three"));
}

TEST_F(ModelHashTest, DoesNotDependOnAHealthyCache) {
  const fs::path model = folder_.write("m", "one");
  model_sha256(model, cache_);
  const auto whole = *read_cache_file(cached());
  for (const char* field : {"file", "sha256"}) {
    auto damaged = whole;
    damaged[field] = 5;
    ASSERT_TRUE(write_cache_file(cached(), damaged));
    EXPECT_EQ(model_sha256(model, cache_), hash_of("one")) << field;
  }
  ASSERT_TRUE(write_cache_file(cached(), {1, 2}));
  EXPECT_EQ(model_sha256(model, cache_), hash_of("one"));
  EXPECT_EQ(model_sha256(model, model / "below"), hash_of("one")) << "a folder that cannot be";
}

}  // namespace
}  // namespace espalier

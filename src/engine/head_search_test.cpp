#include "engine/head_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TrainedHeadsTest : public ::testing::Test {
 protected:
  void head(const std::string& name, const std::string& fields) const {
    fs::create_directories(folder_.path() / "heads" / name);
    folder_.write("heads/" + name + "/config.json", R"({"espalier": {)" + fields + "}}");
  }
  std::vector<std::string> names() const {
    const fs::path folders[] = {folder_.path() / "heads"};
    std::vector<std::string> names;
    for (const HeadCard& card : heads_trained_for(model_, folders, folder_.path() / "cache"))
      names.push_back(card.path.filename().string());
    return names;
  }

  TemporaryFolder folder_;
  const fs::path model_ = folder_.write("model.gguf", "weights");
  const std::string hash_ = sha256(std::as_bytes(std::span("weights", 7)));
};

TEST_F(TrainedHeadsTest, AreThoseWithTheHashOfTheModel) {
  head("a", R"("teacher_sha256": ")" + hash_ + R"(", "teacher_bytes": 7)");
  head("b", R"("teacher_sha256": ")" + std::string(64, '0') + R"(", "teacher_bytes": 7)");
  head("c", R"("teacher_sha256": ")" + hash_ + "\"");
  EXPECT_THAT(names(), ElementsAre("a", "c"));
}

TEST_F(TrainedHeadsTest, AModelOfAnotherSizeIsNotRead) {
  head("a", R"("teacher_sha256": ")" + hash_ + R"(", "teacher_bytes": 8)");
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
}

}  // namespace
}  // namespace espalier

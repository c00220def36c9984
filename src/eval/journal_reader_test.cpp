#include "eval/journal_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "eval/rank_folder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TurnRecord turn(std::int64_t record, std::int64_t number) {
  return {.record = record, .prompt_id = record, .turn = number, .prompt = {1}, .tokens = {2}, .finish_reason = "stop"};
}

class JournalReaderTest : public ::testing::Test {
 protected:
  RankFolder sign_in(int rank) const {
    return RankFolder(run_.rank_path(rank), {.rank = rank, .world = 2}, /*resume=*/true);
  }

  TemporaryFolder folder_;
  RunFolder run_ = RunFolder::create(folder_ / "run", nlohmann::ordered_json::object());
};

TEST_F(JournalReaderTest, TurnsOfAllRanksAreFoundAsTheyCome) {
  JournalReader reader(run_);
  EXPECT_THAT(reader.look(), IsEmpty());
  RankFolder one = sign_in(0), other = sign_in(5);
  one.add(turn(0, 1));
  EXPECT_THAT(reader.look(), ElementsAre(TurnPlace(0, 1)));
  other.add(turn(1, 1));
  one.add(turn(0, 2));
  EXPECT_THAT(reader.look(), ElementsAre(TurnPlace(0, 1), TurnPlace(0, 2), TurnPlace(1, 1)));
}

TEST_F(JournalReaderTest, AJournalThatHasNotChangedIsNotReadAgain) {
  RankFolder rank = sign_in(0);
  rank.add(turn(0, 1));
  JournalReader reader(run_);
  reader.look();
  const std::filesystem::path journal = run_.rank_path(0) / kJournalName;
  const auto written = std::filesystem::last_write_time(journal);
  const std::string text = read_text_file(journal);
  std::ofstream(journal) << std::string(text.size() - 1, 'x') << '\n';  // nobody could read this
  std::filesystem::last_write_time(journal, written);
  EXPECT_THAT(reader.look(), ElementsAre(TurnPlace(0, 1)));
  std::ofstream(journal) << text;
  rank.add(turn(0, 2));
  EXPECT_THAT(reader.look(), ElementsAre(TurnPlace(0, 1), TurnPlace(0, 2)));
}

}  // namespace
}  // namespace espalier

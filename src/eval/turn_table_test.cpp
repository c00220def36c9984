#include "eval/turn_table.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(TurnTable, ALineATurnWithEmptyFieldsForWhatItDoesNotHave) {
  const TurnRecord both = {.set = "mt_bench",
                           .prompt_id = std::int64_t{81},
                           .turn = 2,
                           .prompt = {1, 2, 3},
                           .tokens = {5, 6, 7, 8, 9},
                           .finish_reason = "length",
                           .accept_lengths = {2, 0},
                           .seconds = {0.5, 2},
                           .baseline = BaselineTurn{{1, 4}, {5, 6, 7, 8, 9}, "length"}};
  TurnRecord differs = both, alone = both;
  differs.tokens[1] = 0;
  alone.baseline.reset();
  alone.tokens = {5};
  alone.accept_lengths.clear();
  alone.prompt_id = "a, \"b\"";
  EXPECT_EQ(turns_csv(std::vector{both, differs, alone}),
            "set,prompt_id,turn,prompt_tokens,tokens,finish_reason,rounds,accept_L,tau,seconds,tokens_per_second,tpot,"
            "ttft,baseline_seconds,baseline_tokens_per_second,baseline_tpot,baseline_ttft,speed_up,equal\n"
            "mt_bench,81,2,3,5,length,2,1,2,2.5,2,0.5,0.5,5,1,1,1,2,true\n"
            "mt_bench,81,2,3,5,length,2,1,2,2.5,2,0.5,0.5,5,1,1,1,2,false\n"
            "mt_bench,\"a, \"\"b\"\"\",2,3,1,length,0,,,2.5,0.4,,0.5,,,,,,\n");
}

TEST(TurnTable, ATurnThatFailedHasNoTimes) {
  const TurnRecord failed{
      .set = "mt_bench", .prompt_id = "p", .turn = 2, .finish_reason = "error", .error = "too long"};
  const std::string text = turns_csv(std::vector{failed});
  EXPECT_EQ(text.substr(text.find('\n') + 1), "mt_bench,p,2,0,0,error,0,,,,,,,,,,,,\n");
}

TEST(TurnTable, FieldsWithCommasQuotesAndLineEndsAreQuoted) {
  EXPECT_EQ(csv_field("plain"), "plain");
  EXPECT_EQ(csv_field("a,\"b\"\nc"), "\"a,\"\"b\"\"\nc\"");
  EXPECT_EQ(csv_field("\r"), "\"\r\"");
}

}  // namespace
}  // namespace espalier

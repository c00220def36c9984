#include "bench/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "bench/bench_report.h"

namespace espalier {
namespace {

using testing::HasSubstr;

TEST(PeerAnswer, IsTheMedianOfTheSamples) {
  const PeerAnswer step = read_peer_answer(R"([{"samples_ns": [3000000, 1000000, 2000000]}])", {.prompt = 8});
  EXPECT_EQ(step.seconds, 0.002);
  const PeerAnswer token = read_peer_answer(R"([{"samples_ns": [128000000]}])", {.generated = 128});
  EXPECT_EQ(token.seconds, 0.001);
}

TEST(PeerAnswer, AnythingElseIsAProblem) {
  for (const char* text : {"", "[", "{}", "[]", "[1]", "[{}]", R"([{"samples_ns": []}])", R"([{"samples_ns": ["a"]}])",
                           R"([{"samples_ns": [0]}])", R"([{"samples_ns": [1]}, {"samples_ns": [1]}])"}) {
    const PeerAnswer answer = read_peer_answer(text, {.prompt = 1});
    EXPECT_FALSE(answer.seconds.has_value()) << text;
    EXPECT_THAT(answer.problem, HasSubstr("printed")) << text;
  }
}

TEST(LlamaBench, MustBeAProgram) {
  EXPECT_THROW(LlamaBench("no/such/program", {}), InputError);
  EXPECT_THROW(LlamaBench("/", {}), InputError);
}

TEST(Duel, TheFasterOfThePeersThatWorkCounts) {
  Duel duel;
  EXPECT_EQ(duel.best(), nullptr);
  duel.peers = {{.program = "a", .samples = {3, 3}},
                {.program = "b", .problem = "crashed"},
                {.program = "c", .samples = {2, 4, 2}}};
  ASSERT_NE(duel.best(), nullptr);
  EXPECT_EQ(duel.best()->program, "c");
}

}  // namespace
}  // namespace espalier

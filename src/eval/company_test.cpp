#include "eval/company.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "eval/testing/tiny_setup.h"
#include "format/testing/complaint.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

class CompanyTest : public TinySetupTest {
 protected:
  DecoderOptions options(int parallel) const { return {.context = 256, .parallel = parallel}; }
  Speculation speculation() { return tiny_setup(false, 8).speculation; }
  GenerateRequest request(int number, GenerateEvents events = {}) const {
    return {.prompt = prompts_[static_cast<std::size_t>(number)], .options = {.max_tokens = 20}, .events = events};
  }
  std::vector<std::int32_t> alone(int number) {
    return Batch(model_, options(1), speculation()).generate(request(number)).tokens;
  }

  const std::vector<std::vector<std::int32_t>> prompts_ = {{5, 6, 7, 5, 6}, {9}, {8, 8, 8, 8, 8, 8, 8, 8}, {3, 4, 3}};
};

TEST_F(CompanyTest, EachConversationGetsTheAnswersItWouldGetAlone) {
  Company company(model_, options(2), speculation(), /*plain=*/true);
  std::vector<std::vector<std::int32_t>> with(4), without(4);
  company.run(4, [&](int i) {
    without[static_cast<std::size_t>(i)] = company.generate(company.plain(), request(i)).tokens;
    with[static_cast<std::size_t>(i)] = company.generate(company.decoder(), request(i)).tokens;
  });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(with[static_cast<std::size_t>(i)], alone(i)) << i;
    EXPECT_EQ(without[static_cast<std::size_t>(i)], alone(i)) << i;
  }
  EXPECT_GT(company.plain_seconds(), 0);
}

TEST_F(CompanyTest, ConversationsAreAnsweredAtOnceAndTheirThreadsRunOneAtATime) {
  Company company(model_, options(3), speculation(), false);
  std::int64_t most = 0;
  int inside = 0;
  company.run(3, [&](int i) {
    EXPECT_EQ(++inside, 1);
    --inside;
    company.generate(company.decoder(), request(i, {.on_token = [&](const GeneratedToken&) {
                                                  EXPECT_EQ(++inside, 1);
                                                  most = std::max(most, company.decoder().running());
                                                  --inside;
                                                  return true;
                                                }}));
  });
  EXPECT_EQ(most, 3);
}

TEST_F(CompanyTest, WhileOneBatchHasAnswersTheOtherWaits) {
  Company company(model_, options(4), speculation(), true);
  std::string order;
  company.run(4, [&](int i) {
    const bool plain = i % 2 == 0;
    company.generate(plain ? company.plain() : company.decoder(), request(i, {.on_token = [&](const GeneratedToken&) {
                                                                            order += plain ? 'p' : 'd';
                                                                            return true;
                                                                          }}));
  });
  ASSERT_EQ(order.size(), 80u);
  EXPECT_EQ(std::ranges::count(order.substr(0, 40), order[0]), 40) << order;
}

TEST_F(CompanyTest, AFailedAnswerIsToldItsOwnConversationAlone) {
  Company company(model_, options(3), speculation(), false);
  std::vector<std::vector<std::int32_t>> answers(3);
  std::vector<std::string> told(3);
  company.run(3, [&](int i) {
    const auto number = static_cast<std::size_t>(i);
    GenerateRequest asked = request(i);
    if (i == 0) asked.events.on_token = [](const GeneratedToken&) -> bool { throw std::runtime_error("no more"); };
    if (i == 1) asked.prompt = {};
    try {
      answers[number] = company.generate(company.decoder(), asked).tokens;
    } catch (const std::exception& error) {
      told[number] = error.what();
      answers[number] = company.generate(company.decoder(), request(i)).tokens;  // and goes on
    }
  });
  EXPECT_EQ(told[0], "no more");
  EXPECT_NE(told[1], "");
  EXPECT_EQ(told[2], "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answers[static_cast<std::size_t>(i)], alone(i)) << i;
}

TEST_F(CompanyTest, WhatAConversationEndsWithComesOutWhenAllHaveEnded) {
  Company company(model_, options(2), speculation(), false);
  int ended = 0;
  EXPECT_THAT(complaint([&] {
                company.run(2, [&](int i) {
                  company.generate(company.decoder(), request(i));
                  ++ended;
                  if (i == 0) throw InputError("enough");
                });
              }),
              HasSubstr("enough"));
  EXPECT_EQ(ended, 2);
  company.run(1, [&](int) { EXPECT_EQ(company.generate(company.decoder(), request(1)).tokens, alone(1)); });
}

TEST_F(CompanyTest, ACancelledAnswerEndsAndTheOthersGoOn) {
  Company company(model_, options(2), speculation(), false);
  std::vector<FinishReason> reasons(2);
  company.run(2, [&](int i) {
    GenerateEvents events;
    if (i == 0) events.cancelled = [] { return true; };
    reasons[static_cast<std::size_t>(i)] = company.generate(company.decoder(), request(i, events)).finish_reason;
  });
  EXPECT_EQ(reasons[0], FinishReason::cancelled);
  EXPECT_EQ(reasons[1], FinishReason::token_limit);
}

}  // namespace
}  // namespace espalier

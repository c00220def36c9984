#include "serve/answer_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "serve/testing/tiny_service.h"

namespace espalier {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

std::vector<std::int32_t> alone(const RequestPlan& plan, int choice = 0) {
  TinyEngine engine({.parallel = 1});
  const PlannedChoice& asked = plan.choices.at(static_cast<std::size_t>(choice));
  return engine.batch().generate(plan.prompts[0].tokens, asked.text.generate).tokens;
}

std::shared_ptr<HeardAnswer> heard(int choices = 1) {
  return std::make_shared<HeardAnswer>(choices);
}

// Holds the engine thread where the batch takes this request.
std::shared_ptr<HeardAnswer> held_at(Gate& gate) {
  auto answer = heard();
  answer->on_begun = [&gate] { gate.wait(); };
  return answer;
}

// A request that runs, and that the engine thread does not get past until the gate opens.
std::shared_ptr<HeardAnswer> hold(TinyService& tiny, Gate& gate, const RequestPlan& plan, int key = 0) {
  auto answer = held_at(gate);
  tiny.submit(plan, answer, key);
  gate.wait_reached();
  return answer;
}

ApiError refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ApiError& error) {
    return error;
  }
  return {0, ErrorType::server, "nothing was thrown"};
}

void expect_nothing_held(TinyService& tiny) {
  const PoolCounts pool = tiny.service().reading().pool;
  EXPECT_EQ(pool.held, 0);
  EXPECT_EQ(tiny.service().reading().running, 0);
  EXPECT_EQ(tiny.service().reading().waiting, 0);
}

TEST(AnswerService, AnAnswerIsWhatTheBatchGivesAlone) {
  TinyService tiny;
  const EndedChoice ended = tiny.answer(tiny_plan(20));
  EXPECT_EQ(ended.result.tokens, alone(tiny_plan(20)));
  EXPECT_EQ(ended.figures.completion_tokens, 20);
  EXPECT_EQ(ended.figures.prompt_tokens, 6);
  EXPECT_GT(ended.figures.first_token_seconds, 0);
  EXPECT_EQ(finish_reason(ended.end), "length");
  EXPECT_TRUE(tiny.drain());
}

TEST(AnswerService, ManyAtOnceGetWhatEachGetsAlone) {
  TinyService tiny({.parallel = 3, .context = 128, .cache_positions = 512});
  std::vector<std::shared_ptr<HeardAnswer>> answers;
  for (int i = 0; i < 12; ++i) {
    answers.push_back(heard());
    tiny.submit(tiny_plan(10 + i, 5 + i % 4), answers.back(), i % 3);
  }
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(answers[static_cast<std::size_t>(i)]->wait_over()) << i;
    EXPECT_EQ(answers[static_cast<std::size_t>(i)]->end().result.tokens, alone(tiny_plan(10 + i, 5 + i % 4))) << i;
  }
  EXPECT_TRUE(tiny.drain());
  expect_nothing_held(tiny);
}

TEST(AnswerService, TheChoicesOfAPromptReadItOnce) {
  TinyService tiny({.parallel = 4});
  const auto answer = heard(3);
  RequestPlan plan = tiny_plan(8, 5, 3);
  std::vector<TokenId>& prompt = plan.prompts[0].tokens;
  while (prompt.size() < 150) prompt.push_back(static_cast<TokenId>(3 + prompt.size()));
  tiny.submit(plan, answer);
  ASSERT_TRUE(answer->wait_over());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answer->end(i).result.tokens, alone(plan, i)) << i;
  EXPECT_TRUE(tiny.drain());
  EXPECT_GE(tiny.service().reading().statistics.cached_prompt_tokens, 2 * 149);
}

TEST(AnswerService, AFullQueueTurnsAwayWithATimeToComeBack) {
  Gate gate;
  TinyService tiny({.parallel = 1}, {.queue = 1});
  const auto first = hold(tiny, gate, tiny_plan(4));
  const auto second = heard(), third = heard();
  tiny.submit(tiny_plan(4), second);
  const ApiError error = refusal([&] { tiny.submit(tiny_plan(4), third); });
  EXPECT_EQ(error.status, 503);
  EXPECT_THAT(error.message, HasSubstr("queue is full"));
  EXPECT_THAT(error.retry_after.value_or(0), AllOf(Ge(1), Le(30)));
  EXPECT_EQ(refusal([&] { tiny.service().check_room(0); }).status, 503);
  gate.open();
  EXPECT_TRUE(first->wait_over() && second->wait_over());
  tiny.answer(tiny_plan(4));
  EXPECT_EQ(third->events(), 0);
}

TEST(AnswerService, AKeyHasSoManyAtOnceAndNoMore) {
  Gate gate;
  TinyService tiny({.parallel = 1}, {.per_key = 2});
  const auto first = hold(tiny, gate, tiny_plan(4), 7);
  const auto second = heard(), other = heard();
  tiny.submit(tiny_plan(4), second, 7);
  const ApiError error = refusal([&] { tiny.submit(tiny_plan(4), heard(), 7); });
  EXPECT_EQ(error.status, 429);
  EXPECT_TRUE(error.retry_after.has_value());
  tiny.submit(tiny_plan(4), other, 8);
  gate.open();
  EXPECT_TRUE(first->wait_over() && second->wait_over() && other->wait_over());
  tiny.submit(tiny_plan(4), heard(), 7);
}

TEST(AnswerService, CancellingOneThatWaitsTouchesNoneThatRuns) {
  Gate gate;
  TinyService tiny({.parallel = 1});
  const auto running = hold(tiny, gate, tiny_plan(12));
  const auto waiting = heard(), next = heard();
  const auto ticket = tiny.submit(tiny_plan(12, 9), waiting);
  tiny.submit(tiny_plan(12, 13), next);
  tiny.service().cancel(ticket);
  gate.open();
  ASSERT_TRUE(running->wait_over() && next->wait_over());
  EXPECT_EQ(running->end().result.tokens, alone(tiny_plan(12)));
  EXPECT_EQ(next->end().result.tokens, alone(tiny_plan(12, 13)));
  EXPECT_EQ(waiting->events(), 0);
  EXPECT_TRUE(tiny.drain());
  expect_nothing_held(tiny);
}

TEST(AnswerService, CancelledAtAnyPieceAnAnswerSaysNoMoreAndItsNeighbourIsTheSame) {
  const std::vector<std::int32_t> expected = alone(tiny_plan(24, 9));
  for (int k = 0; k < 12; ++k) {
    TinyService tiny;
    Gate gate;
    const auto cancelled = heard(), neighbour = heard();
    if (k == 0) cancelled->on_begun = [&] { gate.wait(); };
    cancelled->on_piece = [&](int n) {
      if (n == k) gate.wait();
    };
    const auto ticket = tiny.submit(tiny_plan(24), cancelled);
    tiny.submit(tiny_plan(24, 9), neighbour);
    gate.wait_reached();
    tiny.service().cancel(ticket);
    gate.open();
    ASSERT_TRUE(neighbour->wait_over()) << k;
    EXPECT_EQ(neighbour->end().result.tokens, expected) << k;
    EXPECT_LE(cancelled->pieces(), k + 1) << "gone within one step";
    EXPECT_FALSE(cancelled->failure()) << k;
    EXPECT_TRUE(tiny.drain()) << k;
    expect_nothing_held(tiny);
  }
}

// A neighbour takes a token in every step, and so tells which one is under way.
TEST(AnswerService, CancelledAtAnyPartOfItsPromptAnAnswerLeavesNothing) {
  const std::vector<std::int32_t> expected = alone(tiny_plan(40, 9));
  RequestPlan long_prompt = tiny_plan(4);
  while (long_prompt.prompts[0].tokens.size() < 200)
    long_prompt.prompts[0].tokens.push_back(static_cast<TokenId>(3 + long_prompt.prompts[0].tokens.size() % 50));
  for (int k = 1; k < 12; ++k) {
    TinyService tiny;
    Gate begins, leaves;
    const auto cancelled = heard(), neighbour = heard();
    neighbour->on_piece = [&](int n) {
      if (n == 1) begins.wait();
      if (n == 1 + k) leaves.wait();
    };
    tiny.submit(tiny_plan(40, 9), neighbour);
    begins.wait_reached();
    const auto ticket = tiny.submit(long_prompt, cancelled);
    begins.open();
    leaves.wait_reached();
    tiny.service().cancel(ticket);
    const int pieces = cancelled->pieces();
    leaves.open();
    ASSERT_TRUE(neighbour->wait_over()) << k;
    EXPECT_EQ(neighbour->end().result.tokens, expected) << k;
    EXPECT_LE(cancelled->pieces(), pieces + 1) << k << ": gone within one step";
    EXPECT_FALSE(cancelled->failure()) << k;
    EXPECT_TRUE(tiny.drain()) << k;
    expect_nothing_held(tiny);
  }
}

TEST(AnswerService, WhoLeavesWhileItDrainsIsNotWaitedFor) {
  Gate gate;
  TinyService tiny({.parallel = 1});
  const auto running = held_at(gate), waiting = heard();
  const auto ticket = tiny.submit(tiny_plan(200), running);
  gate.wait_reached();
  const auto refused = tiny.submit(tiny_plan(4, 9), waiting);
  tiny.service().drain(600s);
  tiny.service().cancel(ticket);
  tiny.service().cancel(refused);
  gate.open();
  EXPECT_TRUE(tiny.drain(600s)) << "nobody was cut off: they left";
  EXPECT_LE(running->pieces(), 1);
  EXPECT_FALSE(running->failure());
  EXPECT_FALSE(waiting->failure());
  expect_nothing_held(tiny);
}

TEST(AnswerService, WhoHasEndedCannotBeCancelledAndNeitherCanANumberThatNobodyHas) {
  TinyService tiny;
  const auto ended = heard();
  const auto ticket = tiny.submit(tiny_plan(4), ended);
  ASSERT_TRUE(ended->wait_over());
  tiny.service().cancel(ticket);
  tiny.service().cancel(12345);
  EXPECT_EQ(tiny.answer(tiny_plan(12)).result.tokens, alone(tiny_plan(12)));
  EXPECT_FALSE(ended->failure());
  EXPECT_THAT(tiny.metrics().text({}, {}, 0), HasSubstr("espalier_requests_cancelled_total 0"));
}

TEST(AnswerService, WhoWaitsTooLongIsToldAndTheOthersGoOn) {
  Gate gate;
  TinyService tiny({.parallel = 1}, {.queue_time = 1min});
  const auto running = hold(tiny, gate, tiny_plan(200));
  const auto waiting = heard();
  tiny.submit(tiny_plan(4), waiting, 0, ServiceClock::now() - 2min);
  gate.open();
  ASSERT_TRUE(waiting->wait_over() && running->wait_over());
  ASSERT_TRUE(waiting->failure());
  EXPECT_EQ(waiting->failure()->status, 503);
  EXPECT_TRUE(waiting->failure()->retry_after);
  EXPECT_FALSE(running->failure());
}

TEST(AnswerService, ARequestThatTakesTooLongEndsWithATimeout) {
  TinyService tiny({}, {.request_time = 30ms});
  const auto slow = heard();
  slow->on_begun = [] { std::this_thread::sleep_for(60ms); };
  tiny.submit(tiny_plan(200), slow);
  ASSERT_TRUE(slow->wait_over());
  ASSERT_TRUE(slow->failure());
  EXPECT_EQ(slow->failure()->status, 408);
  EXPECT_TRUE(tiny.drain());
  expect_nothing_held(tiny);
}

TEST(AnswerService, AStreamBeginsAfterAWhileInTheQueue) {
  Gate runs, begins;
  TinyService tiny({.parallel = 1}, {.begin_time = 1s});
  const auto running = held_at(runs), waiting = held_at(begins);
  tiny.submit(tiny_plan(200), running);
  runs.wait_reached();
  tiny.submit(tiny_plan(4), waiting, 0, ServiceClock::now() - 2s);
  runs.open();
  begins.wait_reached();
  EXPECT_LT(running->pieces(), 100) << "the other one still runs";
  EXPECT_EQ(running->begun_count(), 1);
  begins.open();
  ASSERT_TRUE(waiting->wait_over());
  EXPECT_EQ(waiting->begun_count(), 1) << "once";
}

TEST(AnswerService, DrainingRefusesWhoWaitsAndLetsOthersEnd) {
  Gate gate;
  TinyService tiny({.parallel = 1});
  const auto running = hold(tiny, gate, tiny_plan(30));
  const auto waiting = heard();
  tiny.submit(tiny_plan(4, 9), waiting);
  tiny.service().drain(10s);
  EXPECT_EQ(tiny.service().health(), ServerHealth::draining);
  EXPECT_EQ(refusal([&] { tiny.submit(tiny_plan(4), heard()); }).status, 503);
  gate.open();
  EXPECT_TRUE(tiny.drain());
  EXPECT_EQ(running->end().result.tokens, alone(tiny_plan(30)));
  ASSERT_TRUE(waiting->failure());
  EXPECT_EQ(waiting->failure()->status, 503);
  expect_nothing_held(tiny);
}

TEST(AnswerService, WhoIsCutOffByTheEndIsToldAndItIsNotWell) {
  Gate gate;
  TinyService tiny;
  const auto running = hold(tiny, gate, tiny_plan(200));
  tiny.service().drain(0ms);
  gate.open();
  EXPECT_FALSE(tiny.drain(0ms));
  ASSERT_TRUE(running->failure());
  EXPECT_EQ(running->failure()->status, 503);
}

TEST(AnswerService, AnAnswerThatIsNotTakenEndsAndNoOther) {
  TinyService tiny;
  const auto stuck = heard(), neighbour = heard();
  stuck->takes_pieces = false;
  tiny.submit(tiny_plan(30), stuck);
  tiny.submit(tiny_plan(30, 9), neighbour);
  ASSERT_TRUE(stuck->wait_over() && neighbour->wait_over());
  EXPECT_EQ(stuck->pieces(), 1);
  EXPECT_TRUE(stuck->failure());
  EXPECT_EQ(neighbour->end().result.tokens, alone(tiny_plan(30, 9)));
}

TEST(AnswerService, PromptsAreScoredWhereThatIsAskedFor) {
  TinyService tiny;
  RequestPlan plan = tiny_plan(1);
  plan.choices[0].text.generate.logprobs = 1;
  plan.choices[0].text.generate.prompt_logprobs = 1;
  const auto answer = heard();
  tiny.submit(plan, answer);
  ASSERT_TRUE(answer->wait_over());
  EXPECT_EQ(answer->scores().size(), plan.prompts[0].tokens.size() - 1);
}

TEST(AnswerService, WhatCanNeverFitIsTheRequestsFault) {
  TinyService tiny({.context = 64});
  RequestPlan plan = tiny_plan(4);
  plan.prompts[0].tokens.assign(100, 5);
  const auto answer = heard();
  tiny.submit(plan, answer);
  ASSERT_TRUE(answer->wait_over());
  ASSERT_TRUE(answer->failure());
  EXPECT_EQ(answer->failure()->status, 400);
  EXPECT_EQ(tiny.answer(tiny_plan(4)).figures.completion_tokens, 4);
}

// A device that fails at its n-th call, for every n of an answer's life.
TEST(AnswerService, AFaultAnywhereFailsThoseItConcernsAndTheServerGoesOn) {
  const std::vector<std::int32_t> expected = alone(tiny_plan(6));
  int failures = 0;
  for (std::int64_t n = 1; n < 400; n += 7) {
    TinyService tiny;
    const auto broken = heard();
    tiny.engine().device().fail_at(n);
    tiny.submit(tiny_plan(6), broken);
    ASSERT_TRUE(broken->wait_over()) << n;
    if (broken->failure()) {
      ++failures;
      EXPECT_EQ(broken->failure()->status, 500) << n;
      EXPECT_THAT(broken->failure()->message, HasSubstr("cmpl-1")) << n;
      EXPECT_FALSE(tiny.remarks().empty()) << n;
    } else {
      EXPECT_EQ(broken->end().result.tokens, expected) << n;
    }
    ASSERT_FALSE(tiny.failure()) << n;
    // The engine thread is idle: nothing else touches the device.
    while (tiny.service().reading().running > 0 && !tiny.failure()) std::this_thread::yield();
    if (tiny.failure()) std::rethrow_exception(tiny.failure());
    tiny.engine().device().never_fail();
    EXPECT_EQ(tiny.answer(tiny_plan(6)).result.tokens, expected) << n;
    EXPECT_TRUE(tiny.drain()) << n;
    expect_nothing_held(tiny);
  }
  EXPECT_GT(failures, 20);
}

TEST(AnswerService, ADeviceThatIsLostFailsWhoeverIsThereAndTheServiceEnds) {
  for (std::int64_t n = 1; n < 400; n += 21) {
    Gate gate;
    TinyService tiny;
    const auto running = held_at(gate), waiting = heard();
    tiny.submit(tiny_plan(30), running);
    gate.wait_reached();
    tiny.engine().device().lose_at(n);
    tiny.submit(tiny_plan(30, 9), waiting);
    gate.open();
    ASSERT_TRUE(tiny.service().wait_until_ended(10s)) << n;
    for (const auto& answer : {running, waiting}) {
      ASSERT_TRUE(answer->failure()) << n;
      EXPECT_EQ(answer->failure()->status, 500) << n;
    }
    EXPECT_TRUE(tiny.failure()) << n;
    EXPECT_EQ(tiny.service().health(), ServerHealth::failed) << n;
    EXPECT_EQ(refusal([&] { tiny.service().check_room(0); }).status, 503) << n;
  }
}

// Whoever writes the answer down, at each of the calls it gets.
TEST(AnswerService, AListenerThatFailsAnywhereFailsItsOwnRequestAlone) {
  const std::vector<std::int32_t> expected = alone(tiny_plan(12, 9));
  const auto fail = [] { throw std::runtime_error("the listener's own fault"); };
  const std::vector<std::function<void(HeardAnswer&)>> faults = {
      [&](HeardAnswer& answer) { answer.on_begun = fail; },
      [&](HeardAnswer& answer) { answer.on_scored = fail; },
      [&](HeardAnswer& answer) { answer.on_piece = [&](int) { fail(); }; },
      [&](HeardAnswer& answer) { answer.on_piece = [&](int n) { n == 3 ? fail() : void(); }; },
      [&](HeardAnswer& answer) { answer.on_ended = fail; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    TinyService tiny;
    const auto broken = heard(), neighbour = heard();
    faults[i](*broken);
    RequestPlan plan = tiny_plan(12);
    plan.choices[0].text.generate.prompt_logprobs = 0;
    tiny.submit(plan, broken);
    tiny.submit(tiny_plan(12, 9), neighbour);
    ASSERT_TRUE(broken->wait_over() && neighbour->wait_over()) << i;
    ASSERT_TRUE(broken->failure()) << i;
    EXPECT_EQ(broken->failure()->status, 500) << i;
    EXPECT_EQ(neighbour->end().result.tokens, expected) << i;
    EXPECT_EQ(tiny.answer(tiny_plan(12, 9)).result.tokens, expected) << i;
    EXPECT_TRUE(tiny.drain()) << i;
    expect_nothing_held(tiny);
  }
}

TEST(AnswerService, AFaultWhileItDrainsFailsWhomItConcernsAndItEnds) {
  Gate gate;
  TinyService tiny;
  const auto running = hold(tiny, gate, tiny_plan(30));
  tiny.service().drain(10s);
  tiny.engine().device().fail_at(40);
  gate.open();
  EXPECT_TRUE(tiny.drain()) << "told, not cut off";
  ASSERT_TRUE(running->failure());
  EXPECT_EQ(running->failure()->status, 500);
  expect_nothing_held(tiny);
}

TEST(AnswerService, AnEngineThatCannotBeOpenedIsTold) {
  Metrics metrics;
  std::atomic<int> failed = 0, ended = 0;
  AnswerService service({}, []() -> std::unique_ptr<ServedEngine> { throw InputError("no such model"); }, metrics,
                        {.on_failed = [&](std::exception_ptr) { ++failed; }, .on_ended = [&] { ++ended; }});
  ASSERT_TRUE(service.wait_until_ended(10s));
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(service.health(), ServerHealth::failed);
  EXPECT_FALSE(service.all_well());
  EXPECT_EQ(refusal([&] { service.check_room(0); }).status, 503);
}

TEST(AnswerService, SlotsShowWhoRuns) {
  Gate gate;
  TinyService tiny({.parallel = 2});
  const auto running = heard();
  running->on_piece = [&](int n) {
    if (n == 2) gate.wait();
  };
  tiny.submit(tiny_plan(40), running);
  gate.wait_reached();
  const std::vector<SlotFacts> slots = tiny.service().reading().slots;
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0].request, "cmpl-1");
  EXPECT_EQ(slots[0].prompt_tokens, 6);
  EXPECT_GE(slots[0].decoded_tokens, 1);
  EXPECT_FALSE(slots[1].busy());
  gate.open();
  EXPECT_TRUE(tiny.drain());
  for (const SlotFacts& slot : tiny.service().reading().slots) EXPECT_FALSE(slot.busy());
}

}  // namespace
}  // namespace espalier

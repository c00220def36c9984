#include "decode/step_timing.h"

#include <gmock/gmock.h>

#include "decode/testing/tiny_model_test.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Lt;

class StepTimingTest : public TinyModelTest {
 protected:
  // On a machine whose clock is so much later each time somebody looks at it.
  StepTimes measured(double tick, std::int64_t positions = 1024) {
    KvCache cache(*device_, model_.kv_shape(DType::f16), positions + 128);
    Workspace workspace(model_, cache.memory(), {.rows = 64, .outputs = 1, .positions = positions});
    double now = 0;
    const StepTimes times = measure_step_times(model_, cache, workspace, {.clock = [&] { return now += tick; }});
    EXPECT_TRUE(times.usable());
    return times;
  }
};

TEST_F(StepTimingTest, StepsAreMeasuredBehindAShortAndALongerText) {
  EXPECT_THAT(measured(1e-5).contexts, ElementsAre(64, 512));
}

TEST_F(StepTimingTest, WhereStepsAreSlowTheLongerTextIsShorter) {
  EXPECT_THAT(measured(0.05).contexts, ElementsAre(64, AllOf(Ge(192), Lt(512))));
}

TEST_F(StepTimingTest, WhereTheContextIsShortTheLongerTextFillsIt) {
  EXPECT_THAT(measured(1e-5, 384).contexts, ElementsAre(64, 320));
  EXPECT_THAT(measured(1e-5, 128).contexts, ElementsAre(64));
}

TEST_F(StepTimingTest, WhereThereIsNoTimeAtAllOneTextHasToDo) {
  const StepTimes times = measured(10);
  EXPECT_THAT(times.contexts, ElementsAre(64));
  EXPECT_THAT(times.rows, ElementsAre(1, 2));
}

// The first rows may have to wait for weights that are not in memory yet.
TEST_F(StepTimingTest, WhatItTookToBeginIsNotTakenFromTheTimeForSteps) {
  KvCache cache(*device_, model_.kv_shape(DType::f16), 1152);
  Workspace workspace(model_, cache.memory(), {.rows = 64, .outputs = 1, .positions = 1024});
  double now = 0;
  int looks = 0;
  const auto clock = [&] { return now += ++looks <= 3 ? 10 : 1e-5; };  // until a first step was seen to end
  EXPECT_EQ(measure_step_times(model_, cache, workspace, {.clock = clock}).rows.size(), 12u);
}

}  // namespace
}  // namespace espalier

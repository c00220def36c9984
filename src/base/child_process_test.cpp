#include "base/child_process.h"

#include <gtest/gtest.h>

#include <csignal>

namespace espalier {
namespace {

ChildCommand shell(const std::string& script) {
  return {.words = {"/bin/sh", "-c", script}};
}

TEST(ChildProcess, OutputIsKeptAndHeardAsItComes) {
  ChildCommand command = shell("echo one; echo two");
  std::string heard;
  command.on_output = [&](std::string_view piece) { heard += piece; };
  const ChildResult result = run_child(command);
  EXPECT_TRUE(result.succeeded());
  EXPECT_EQ(result.output, "one\ntwo\n");
  EXPECT_EQ(heard, result.output);
}

TEST(ChildProcess, HasTheEnvironmentItIsGivenAndNoInput) {
  ChildCommand command = shell("cat; echo \"$GREETING$HOME\"");
  command.environment = {"GREETING=hello"};
  EXPECT_EQ(run_child(command).output, "hello\n");
}

TEST(ChildProcess, AFailureIsToldWithItsLastWords) {
  const ChildResult result = run_child(shell("echo first >&2; echo why >&2; exit 3"));
  EXPECT_FALSE(result.succeeded());
  EXPECT_EQ(end_of_child(result), "exit code 3: why");
}

TEST(ChildProcess, ACrashIsToldByItsSignal) {
  const ChildResult result = run_child(shell("kill -SEGV $$"));
  EXPECT_FALSE(result.succeeded());
  EXPECT_EQ(end_of_child(result), "ended by signal 11 (Segmentation fault)");
}

TEST(ChildProcess, OneThatCannotBeStartedSaysWhy) {
  const ChildResult result = run_child({.words = {"/no/such/program"}});
  EXPECT_FALSE(result.succeeded());
  EXPECT_EQ(end_of_child(result), "cannot start: No such file or directory");
}

TEST(ChildProcess, IsEndedWhenItIsCancelledEvenIfItDoesNotWantTo) {
  for (const char* script : {"echo go; sleep 100", "trap '' TERM; echo go; while :; do sleep 0.1; done"}) {
    ChildCommand command = shell(script);
    bool cancelled = false;
    command.on_output = [&](std::string_view) { cancelled = true; };
    command.cancelled = [&] { return cancelled; };
    const ChildResult result = run_child(command);
    EXPECT_TRUE(result.cancelled);
    EXPECT_FALSE(result.succeeded());
  }
}

}  // namespace
}  // namespace espalier

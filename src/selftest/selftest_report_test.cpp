#include "selftest/selftest_report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "device/named_device.h"
#include "selftest/selftest_page.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Figure figure(const char* name, std::int64_t rows, std::int64_t context, double seconds) {
  return {.name = name, .rows = rows, .context = context, .samples = {seconds}};
}

BenchResult some_figures() {
  BenchResult result{.model = "models/of/somebody/tiny.gguf", .device = "cuda", .isa = "sm_9.0", .draft = "none"};
  result.sizes = {.rows = {1, 8}, .contexts = {128}};
  result.figures = {figure("step", 1, 128, 0.002), figure("step", 8, 128, 0.004),
                    figure("plain_decoding", 0, 128, 0.0025), figure("prefill", 512, 0, 0.1)};
  return result;
}

SelftestReport some_report() {
  SelftestReport report{.date = "2026-11-17T12:00:00Z", .title = "cuda:0, NVIDIA H200"};
  report.device = R"({"device": "cuda:0", "gpu": {"name": "NVIDIA H200"}})";
  report.parts = {{.name = "conformance", .shows = "every op", .tests = {.tests = 12, .skipped = 2}, .seconds = 1.5},
                  {.name = "lossless", .tests = {.tests = 4}, .seconds = 20}};
  report.speed.result = some_figures();
  return report;
}

TEST(SelftestReport, HoldsWhereEveryPartDoes) {
  SelftestReport report = some_report();
  EXPECT_TRUE(report.held());
  EXPECT_EQ(verdict_text(report), "everything held on cuda:0, NVIDIA H200");
  report.left_out = {"digests"};
  EXPECT_EQ(verdict_text(report), "everything held on cuda:0, NVIDIA H200 (left out: digests)");
  report.parts[1].problem = "ended by signal 11 (Segmentation fault)";
  report.speed.problem = "CUDA: no memory";
  EXPECT_FALSE(report.held());
  EXPECT_EQ(verdict_text(report), "FAILED on cuda:0, NVIDIA H200: lossless, speed (left out: digests)");
}

TEST(SelftestReport, APartThatRanNoTestHasShownNothing) {
  EXPECT_FALSE((PartResult{.name = "conformance"}).held());
  EXPECT_FALSE((PartResult{.name = "conformance", .tests = {.tests = 2, .skipped = 2}}).held());
}

TEST(SelftestReport, ALineOfEachPartAndTheTestsThatFailed) {
  SelftestReport report = some_report();
  EXPECT_EQ(part_text(report.parts[0]), "conformance  10 tests held, 2 do not apply                1.5 s\n");
  report.parts[1].tests.failed = {{"A.B/cuda", "a.cpp:7\nExpected: 1"}};
  EXPECT_EQ(part_text(report.parts[1]),
            "lossless     FAILED: 1 of 4 tests                        20.0 s\n"
            "  A.B/cuda\n      a.cpp:7\n      Expected: 1\n");
  report.parts[1].problem = "exit code 3";
  EXPECT_THAT(part_text(report.parts[1]), HasSubstr("FAILED: exit code 3"));
}

TEST(SelftestReport, AnswersThatWereComparedAreCountedEverywhere) {
  SelftestReport report = some_report();
  EXPECT_TRUE(selftest_json(report)["parts"][1]["answers"].is_null());
  report.parts[1].tests.answers_equal = 60;
  EXPECT_EQ(part_text(report.parts[1]), "lossless     4 tests held: 60 answers equal              20.0 s\n");
  report.parts[1].tests.near_tie_margins = {0.0012, 0.031};
  EXPECT_THAT(part_text(report.parts[1]), HasSubstr("60 answers equal, 2 part at near-ties (margins up to 0.0310)"));
  const nlohmann::ordered_json answers = selftest_json(report)["parts"][1]["answers"];
  EXPECT_EQ(answers["equal"], 60);
  EXPECT_EQ(answers["near_ties"], 2);
  EXPECT_EQ(answers["margins"], (std::vector{0.0012, 0.031}));
  EXPECT_THAT(selftest_page(report), HasSubstr("(margins up to 0.0310): 0.0012, 0.0310</p>"));
}

TEST(SelftestReport, TheJsonHasWhatOthersNeedAndNoPaths) {
  SelftestReport report = some_report();
  report.parts[1].tests.failed = {{"A.B/cuda", "why"}};
  const nlohmann::ordered_json json = selftest_json(report);
  EXPECT_EQ(json["schema"], kSelftestSchema);
  EXPECT_EQ(json["held"], false);
  EXPECT_EQ(json["parts"][0]["held"], true);
  EXPECT_EQ(json["parts"][1]["failed"][0]["name"], "A.B/cuda");
  EXPECT_EQ(json["device"]["gpu"]["name"], "NVIDIA H200");
  EXPECT_EQ(json["speed"]["figures"]["model"], "tiny.gguf");
  EXPECT_THAT(json.dump(), Not(HasSubstr("somebody")));
}

TEST(SelftestPage, ShowsVerdictPartsAndSpeedAndNeedsNothingElse) {
  SelftestReport report = some_report();
  const std::string page = selftest_page(report);
  EXPECT_THAT(page, HasSubstr("everything held on cuda:0, NVIDIA H200"));
  EXPECT_THAT(page, HasSubstr("class=\"lossless holds\""));
  EXPECT_THAT(page, HasSubstr("2.000"));  // milliseconds of a step of one row
  EXPECT_THAT(page, HasSubstr("400.0"));  // tokens a second
  for (const char* outside : {"http://", "https://", "<script", "src=", "somebody"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
}

TEST(SelftestPage, WhatATestSaidStaysText) {
  SelftestReport report = some_report();
  report.parts[0].tests.failed = {{"A.B/cuda", "<script>alert(1)</script>"}};
  const std::string page = selftest_page(report);
  EXPECT_THAT(page, HasSubstr("class=\"lossless failed\""));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(DeviceFacts, SayWhatADeviceIs) {
  const auto cpu = make_named_device("cpu");
  const nlohmann::ordered_json facts = device_facts("cpu", *cpu, {});
  EXPECT_EQ(facts["isa"], cpu->isa());
  EXPECT_EQ(facts["gpu"], nullptr);
  EXPECT_EQ(device_title(facts), "cpu, " + std::string(cpu->isa()));
  const cuda::Devices gpus{.gpus = {{.index = 0, .name = "A"}, {.index = 1, .name = "B"}}, .driver = "13.0"};
  const nlohmann::ordered_json second = device_facts("cuda:1", *cpu, gpus);
  EXPECT_EQ(second["driver"], "13.0");
  EXPECT_EQ(device_title(second), "cuda:1, B");
  nlohmann::ordered_json fake = facts;
  fake["device"] = "ascend:1";
  fake["kind"] = "ascend (fake)";
  fake["isa"] = "Ascend910B4";
  EXPECT_EQ(device_title(fake), "ascend:1 (fake), Ascend910B4");
}

}  // namespace
}  // namespace espalier

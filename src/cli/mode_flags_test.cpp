#include "cli/mode_flags.h"

#include <gtest/gtest.h>

#include <map>

#include "format/testing/complaint.h"

namespace espalier {
namespace {

using Variables = std::map<std::string, std::string>;

ModeOptions resolve(const ModeFlags& flags, const Variables& variables = {}) {
  ModeRequest request;
  ask_by_flags(flags, request);
  ask_by_environment(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      request);
  return resolve_modes(request);
}

std::string modes_complaint(const ModeFlags& flags, const Variables& variables = {}) {
  return complaint([&] { resolve(flags, variables); });
}

TEST(ModeFlags, AFlagBeatsTheEnvironmentWhichBeatsTheMode) {
  EXPECT_EQ(resolve({.mode = "reference"}).attention, "eager");
  EXPECT_EQ(resolve({.mode = "reference"}, {{"ESPALIER_ATTENTION", "fused"}}).attention, "fused");
  EXPECT_EQ(resolve({.attention = "eager"}, {{"ESPALIER_ATTENTION", "fused"}}).attention, "eager");
  EXPECT_EQ(resolve({.reorder = "fast"}, {{"ESPALIER_REORDER", "full"}}).reorder, "fast");
  EXPECT_EQ(resolve({}, {{"ESPALIER_REORDER", "full"}}).reorder, "full");
  EXPECT_EQ(resolve({}, {{"ESPALIER_MODE", "reference"}}).mode, "reference");
  EXPECT_EQ(resolve({.mode = "performance"}, {{"ESPALIER_MODE", "reference"}}).cache, "shared");
  EXPECT_EQ(resolve({.cache = "shared"}, {{"ESPALIER_MODE", "reference"}}).cache, "shared");
  EXPECT_EQ(resolve({}, {{"ESPALIER_DEVICE", "cuda:1"}}).device, "cuda:1");
  EXPECT_EQ(resolve({.mode = "reference"}, {{"ESPALIER_DEVICE", "cpu"}}).device, "cpu");
  EXPECT_EQ(resolve({.device = "auto"}, {{"ESPALIER_DEVICE", "cpu"}}).device, "auto");
}

TEST(ModeFlags, AVariableSetToNothingCountsAsNotSet) {
  EXPECT_EQ(resolve({}, {{"ESPALIER_MODE", ""}, {"ESPALIER_ATTENTION", ""}}).attention, "fused");
}

TEST(ModeFlags, AnUnknownValueNamesTheFlagOrTheVariable) {
  EXPECT_EQ(modes_complaint({.reorder = ""}), "--reorder: expected fast or full, got ''");
  EXPECT_EQ(modes_complaint({}, {{"ESPALIER_MODE", "quick"}}),
            "ESPALIER_MODE: expected performance or reference or eager-aligned, got 'quick'");
  EXPECT_EQ(modes_complaint({}, {{"ESPALIER_ATTENTION", "flash"}}),
            "ESPALIER_ATTENTION: expected fused or eager, got 'flash'");
  EXPECT_EQ(modes_complaint({}, {{"ESPALIER_DEVICE", "tpu"}}),
            "ESPALIER_DEVICE: expected auto or cpu or reference or cuda or ascend, or cuda:N or ascend:N, got 'tpu'");
  // What a flag overrules is not looked at.
  EXPECT_EQ(modes_complaint({.attention = "fused"}, {{"ESPALIER_ATTENTION", "flash"}}), "");
}

}  // namespace
}  // namespace espalier

#include "cli/mode_flags.h"

#include <gmock/gmock.h>
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

std::vector<std::string> values(const ModeOptions& o) {
  return {o.device, o.checked, o.invariants, o.attention, o.cache, o.reorder, o.mask, o.round_route};
}

TEST(Modes, EachModeIsThePresetOfTheTableInDocs) {
  EXPECT_THAT(values(resolve({})),
              testing::ElementsAre("auto", "off", "off", "fused", "shared", "fast", "auto", "auto"));
  EXPECT_EQ(values(resolve({.mode = "performance"})), values(resolve({})));
  EXPECT_THAT(values(resolve({.mode = "reference"})),
              testing::ElementsAre("reference", "plain", "on", "eager", "replicate", "full", "dense", "host"));
  EXPECT_THAT(values(resolve({.mode = "eager-aligned"})),
              testing::ElementsAre("auto", "off", "off", "eager", "shared", "fast", "dense", "auto"));
}

TEST(Modes, AFlagBeatsTheEnvironmentWhichBeatsTheMode) {
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

TEST(Modes, AnyPartOfAPresetCanBeTurnedOff) {
  const ModeOptions options = resolve({.mode = "reference",
                                       .device = "cpu",
                                       .checked = "off",
                                       .invariants = "off",
                                       .attention = "fused",
                                       .mask = "list"});
  EXPECT_THAT(values(options), testing::ElementsAre("cpu", "off", "off", "fused", "replicate", "full", "list", "host"));
}

TEST(Modes, AVariableSetToNothingCountsAsNotSet) {
  EXPECT_EQ(resolve({}, {{"ESPALIER_MODE", ""}, {"ESPALIER_ATTENTION", ""}}).attention, "fused");
}

TEST(Modes, AnUnknownValueNamesTheFlagOrTheVariable) {
  EXPECT_EQ(modes_complaint({.mode = "fast"}),
            "--mode: expected performance or reference or eager-aligned, got 'fast'");
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

TEST(Modes, EagerAttentionOverAListIsRefusedWhoeverAskedForIt) {
  EXPECT_EQ(modes_complaint({.attention = "eager", .mask = "list"}),
            "--mask list with --attention eager: eager attention needs the dense mask");
  EXPECT_EQ(modes_complaint({.mask = "list"}, {{"ESPALIER_ATTENTION", "eager"}}),
            "--mask list with ESPALIER_ATTENTION=eager: eager attention needs the dense mask");
  EXPECT_EQ(modes_complaint({.mode = "eager-aligned", .mask = "list"}),
            "--mask list with --mode eager-aligned: eager attention needs the dense mask");
  EXPECT_EQ(modes_complaint({.mask = "list"}, {{"ESPALIER_MODE", "reference"}}),
            "--mask list with ESPALIER_MODE=reference: eager attention needs the dense mask");
}

TEST(Modes, TheDecoderHearsOfItsPart) {
  DecoderOptions options;
  apply_modes(resolve({.mode = "reference"}), options);
  EXPECT_EQ(options.attention, AttentionOp::eager);
  EXPECT_EQ(options.mask, MaskChoice::dense);
  EXPECT_EQ(options.kv.strategy, CacheStrategy::replicate);
  EXPECT_EQ(options.kv.reorder, Reorder::full);
  EXPECT_TRUE(options.kv.check);
  EXPECT_TRUE(options.invariants);
  apply_modes(resolve({.mask = "list"}), options);
  EXPECT_EQ(options.attention, AttentionOp::fused);
  EXPECT_EQ(options.mask, MaskChoice::list);
  EXPECT_EQ(options.kv.strategy, CacheStrategy::shared);
  EXPECT_FALSE(options.invariants);
}

}  // namespace
}  // namespace espalier

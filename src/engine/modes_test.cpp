#include "engine/modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/testing/complaint.h"

namespace espalier {
namespace {

// Asked for by whoever stands before it.
std::optional<AskedMode> flag(const char* name, const std::string& value) {
  return AskedMode{value, std::string("--") + name};
}

std::optional<AskedMode> variable(const std::string& value) {
  return AskedMode{value, "ESPALIER_ATTENTION"};
}

std::string complaint_about(const ModeRequest& request) {
  return complaint([&] { resolve_modes(request); });
}

std::vector<std::string> values(const ModeRequest& request) {
  const ModeOptions o = resolve_modes(request);
  return {o.device, o.checked, o.invariants, o.attention, o.cache, o.reorder, o.mask, o.round_route};
}

TEST(Modes, EachModeIsThePresetOfTheTableInDocs) {
  EXPECT_THAT(values({}), testing::ElementsAre("auto", "off", "off", "fused", "shared", "fast", "auto", "auto"));
  EXPECT_EQ(values({.mode = flag("mode", "performance")}), values({}));
  EXPECT_THAT(values({.mode = flag("mode", "reference")}),
              testing::ElementsAre("reference", "plain", "on", "eager", "replicate", "full", "dense", "host"));
  EXPECT_THAT(values({.mode = flag("mode", "eager-aligned")}),
              testing::ElementsAre("auto", "off", "off", "eager", "shared", "fast", "dense", "auto"));
}

TEST(Modes, AnyPartOfAPresetCanBeTurnedOff) {
  EXPECT_THAT(values({.mode = flag("mode", "reference"),
                      .device = flag("device", "cpu"),
                      .checked = flag("checked", "off"),
                      .invariants = flag("invariants", "off"),
                      .attention = flag("attention", "fused"),
                      .mask = flag("mask", "list")}),
              testing::ElementsAre("cpu", "off", "off", "fused", "replicate", "full", "list", "host"));
}

TEST(Modes, AnUnknownValueNamesWhoAskedForIt) {
  EXPECT_EQ(complaint_about({.mode = flag("mode", "fast")}),
            "--mode: expected performance or reference or eager-aligned, got 'fast'");
  EXPECT_EQ(complaint_about({.reorder = flag("reorder", "")}), "--reorder: expected fast or full, got ''");
  EXPECT_EQ(complaint_about({.attention = variable("flash")}),
            "ESPALIER_ATTENTION: expected fused or eager, got 'flash'");
  EXPECT_EQ(complaint_about({.device = flag("device", "tpu")}),
            "--device: expected auto or cpu or reference or cuda or ascend, or cuda:N or ascend:N, got 'tpu'");
}

TEST(Modes, EagerAttentionOverAListIsRefusedWhoeverAskedForIt) {
  const auto list = flag("mask", "list");
  EXPECT_EQ(complaint_about({.attention = flag("attention", "eager"), .mask = list}),
            "--mask list with --attention eager: eager attention needs the dense mask");
  EXPECT_EQ(complaint_about({.attention = variable("eager"), .mask = list}),
            "--mask list with ESPALIER_ATTENTION=eager: eager attention needs the dense mask");
  EXPECT_EQ(complaint_about({.mode = flag("mode", "eager-aligned"), .mask = list}),
            "--mask list with --mode eager-aligned: eager attention needs the dense mask");
  EXPECT_EQ(complaint_about({.mode = AskedMode{"reference", "ESPALIER_MODE"}, .mask = list}),
            "--mask list with ESPALIER_MODE=reference: eager attention needs the dense mask");
}

TEST(Modes, AListForADeviceThatNeedsTheMaskIsRefusedBeforeItIsOpened) {
  EXPECT_EQ(complaint_about({.device = flag("device", "ascend:1"), .mask = flag("mask", "list")}),
            "--mask list with --device ascend:1: this device needs the dense mask");
}

TEST(Modes, TheDecoderHearsOfItsPart) {
  DecoderOptions options;
  apply_modes(resolve_modes({.mode = flag("mode", "reference")}), options);
  EXPECT_EQ(options.attention, AttentionOp::eager);
  EXPECT_EQ(options.mask, MaskChoice::dense);
  EXPECT_EQ(options.kv.strategy, CacheStrategy::replicate);
  EXPECT_EQ(options.kv.reorder, Reorder::full);
  EXPECT_TRUE(options.kv.check);
  EXPECT_TRUE(options.invariants);
  apply_modes(resolve_modes({.mask = flag("mask", "list")}), options);
  EXPECT_EQ(options.attention, AttentionOp::fused);
  EXPECT_EQ(options.mask, MaskChoice::list);
  EXPECT_EQ(options.kv.strategy, CacheStrategy::shared);
  EXPECT_FALSE(options.invariants);
}

}  // namespace
}  // namespace espalier

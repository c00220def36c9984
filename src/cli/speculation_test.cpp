#include "cli/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/options.h"
#include "format/testing/complaint.h"

namespace espalier {
namespace {

const std::string kTree = std::string(ESPALIER_TEST_DATA) + "/../../data/trees/pangu_64.json";

DraftPlan plan(const SpeculationFlags& flags, const std::string& default_draft = "none") {
  return plan_speculation(flags, default_draft);
}

std::string plan_complaint(const SpeculationFlags& flags, const std::string& default_draft = "none") {
  return complaint([&] { plan_speculation(flags, default_draft); });
}

TEST(SpeculationFlags, WithoutAnyThereIsNoSpeculation) {
  EXPECT_TRUE(plan({}).plain());
  EXPECT_TRUE(plan({.draft = "none"}, "auto").plain());
  EXPECT_TRUE(plan({}, "auto").automatic);
  EXPECT_FALSE(plan({}, "auto").plain());
}

TEST(SpeculationFlags, TheDefaultsAreADynamicTreeOf16RowsAnd6Levels) {
  const TreeOptions tree = plan({.draft = "ngram"}).tree;
  EXPECT_EQ(tree.shape, TreeShape::dynamic);
  EXPECT_EQ(tree.nodes, 16);
  EXPECT_EQ(tree.depth, 6);
  EXPECT_EQ(tree.expand, 4);
  EXPECT_EQ(tree.branch, 4);
  EXPECT_EQ(plan({.draft = "ngram", .expand = 7}).tree.branch, 7);
  EXPECT_EQ(plan({.draft = "ngram", .expand = 7, .branch = 2}).tree.branch, 2);
}

TEST(SpeculationFlags, RowsAreChosenWhereThatIsAskedForOrTheDrafterIsChosenToo) {
  EXPECT_FALSE(plan({.draft = "ngram"}).chooses_nodes);
  const DraftPlan chosen = plan({.draft = "ngram", .chooses_nodes = true});
  EXPECT_TRUE(chosen.chooses_nodes);
  EXPECT_EQ(chosen.tree.nodes, kMostChosenRows);
  EXPECT_EQ(chosen.tree.depth, kMostChosenLevels);
  EXPECT_EQ(plan({.draft = "ngram", .chooses_nodes = true, .depth = 3}).tree.depth, 3);
  EXPECT_TRUE(plan({.draft = "auto"}).chooses_nodes);
  EXPECT_TRUE(plan({}, "auto").chooses_nodes);
  EXPECT_FALSE(plan({.draft = "auto", .nodes = 16}).chooses_nodes);
  EXPECT_EQ(plan({.draft = "auto", .nodes = 16}).tree.nodes, 16);
  EXPECT_EQ(plan({.draft = "ngram", .tree = "static:" + kTree, .chooses_nodes = true}).tree.nodes, 65);
  EXPECT_EQ(plan_complaint({.chooses_nodes = true}), "--draft-nodes: only with --draft, for example --draft ngram");
}

TEST(SpeculationFlags, AChosenNumberOfRowsIsChosenWithinTheDevicesLargestStep) {
  const SpeculationFlags flags{.draft = "ngram", .chooses_nodes = true};
  EXPECT_EQ(fit_tree(plan(flags).tree, 32, flags).nodes, 32);
  EXPECT_EQ(fit_tree(plan(flags).tree, 128, flags).nodes, kMostChosenRows);
}

TEST(SpeculationFlags, DraftersAreUnitedByAPlusEachOnce) {
  EXPECT_THAT(plan({.draft = "eagle3+ngram", .heads = {"h"}}).drafters, testing::ElementsAre("eagle3", "ngram"));
  EXPECT_EQ(plan_complaint({.draft = "ngram+hostile+ngram"}), "--draft ngram+hostile+ngram: ngram is there twice");
  EXPECT_EQ(plan_complaint({.draft = "ngram+auto"}), "--draft ngram+auto: auto stands alone");
  EXPECT_EQ(plan_complaint({.draft = "none+ngram"}), "--draft none+ngram: none stands alone");
  EXPECT_THAT(plan_complaint({.draft = "guess"}),
              testing::StartsWith("--draft: expected none, auto or one or several of"));
  EXPECT_THAT(plan_complaint({.draft = "ngram+"}), testing::EndsWith("got ''"));
  EXPECT_THAT(plan_complaint({.draft = ""}), testing::EndsWith("got ''"));
}

TEST(SpeculationFlags, AStaticTreeKeepsAllItsRowsUnlessToldOtherwise) {
  const TreeOptions whole = plan({.draft = "ngram", .tree = "static:" + kTree}).tree;
  EXPECT_EQ(whole.shape, TreeShape::fixed);
  EXPECT_EQ(whole.nodes, 65);
  EXPECT_EQ(max_rows(whole), 65);
  EXPECT_EQ(whole.depth, 4);
  const TreeOptions best = plan({.draft = "ngram", .tree = "static:" + kTree, .nodes = 16}).tree;
  EXPECT_EQ(best.nodes, 16);
  EXPECT_EQ(best.choices->size(), 16);
  const TreeOptions flat = plan({.draft = "ngram", .tree = "static:" + kTree, .depth = 1}).tree;
  EXPECT_EQ(flat.depth, 1);
  EXPECT_EQ(flat.choices->depth(), 1);
  EXPECT_EQ(max_rows(plan({.draft = "ngram", .tree = "static:" + kTree, .nodes = 1}).tree), 1);
  const TreeOptions none = plan({.draft = "ngram", .tree = "static:" + kTree, .depth = 0}).tree;
  EXPECT_EQ(none.nodes, 1) << "no levels, no guesses: the root alone";
  EXPECT_EQ(none.depth, 0);
  EXPECT_EQ(plan({.draft = "ngram", .tree = "static:" + kTree, .nodes = 30, .depth = 3}).tree.nodes, 30);
}

TEST(SpeculationFlags, AChainHasOneGuessPerLevel) {
  const TreeOptions chain = plan({.draft = "ngram", .tree = "chain", .nodes = 4}).tree;
  EXPECT_EQ(chain.shape, TreeShape::chain);
  EXPECT_EQ(max_rows(chain), 4);
  EXPECT_EQ(max_rows(plan({.draft = "ngram", .tree = "chain"}).tree), 7);
}

TEST(SpeculationFlags, ATreeThatIsNoneIsNamed) {
  EXPECT_EQ(plan_complaint({.draft = "ngram", .tree = "bush"}),
            "--tree: expected chain, static, static:FILE or dynamic, got 'bush'");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .tree = "static:"}), "--tree static:FILE: the file is missing");
  EXPECT_THAT(plan_complaint({.draft = "ngram", .tree = "static:no/such/tree.json"}),
              testing::HasSubstr("no/such/tree.json"));
  EXPECT_THAT(plan_complaint({.draft = "ngram", .tree = "static:" + std::string(ESPALIER_TEST_DATA) + "/digests.json"}),
              testing::HasSubstr("digests.json"));
}

TEST(SpeculationFlags, AFlagThatWouldDoNothingIsRefused) {
  EXPECT_EQ(plan_complaint({.draft = "ngram", .heads = {"h"}}),
            "--head: only with --draft eagle3 or medusa, got --draft ngram");
  EXPECT_EQ(plan_complaint({.heads = {"h"}}), "--head: only with --draft eagle3 or medusa, got --draft none");
  EXPECT_EQ(plan_complaint({.draft = "medusa", .heads = {"h"}, .window = 8}),
            "--draft-window: only with --draft eagle3, got --draft medusa");
  EXPECT_EQ(plan_complaint({.draft = "medusa", .heads = {"h"}, .head_options = {"taps=1,2,3"}}),
            "--head-option: only with --draft eagle3, got --draft medusa");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .head_weights = "file"}),
            "--head-weights: only with --draft eagle3 or medusa, got --draft ngram");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .vocabulary = 8}),
            "--draft-vocab: only with --draft eagle3 or medusa, got --draft ngram");
  EXPECT_EQ(plan_complaint({.draft = "auto", .head_weights = "file", .vocabulary = 8}), "");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .draft_model = "m"}),
            "--draft-model: only with --draft model, got --draft ngram");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .oracle_profile = "0.5"}),
            "--oracle-profile: only with --draft oracle, got --draft ngram");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .tree = "chain", .expand = 3}),
            "--draft-expand: only with --tree dynamic, got --tree chain");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .tree = "static", .branch = 3}),
            "--draft-branch: only with --tree dynamic, got --tree static");
  EXPECT_EQ(plan_complaint({.nodes = 8}), "--draft-nodes: only with --draft, for example --draft ngram");
  EXPECT_EQ(plan_complaint({.tree = "chain"}), "--tree: only with --draft, for example --draft ngram");
  EXPECT_EQ(plan_complaint({.draft = "none", .tree = "chain", .nodes = 8}), "");
  EXPECT_EQ(plan_complaint({.draft = "auto", .heads = {"h"}, .window = 8}), "");
}

TEST(SpeculationFlags, ADrafterThatNeedsAFileSaysSo) {
  EXPECT_EQ(plan_complaint({.draft = "eagle3"}), "") << "a head may be found";
  EXPECT_EQ(plan_complaint({.draft = "model"}), "--draft model: needs --draft-model PATH");
  EXPECT_EQ(plan_complaint({.draft = "auto", .head_options = {"taps=1,2,3"}}), "--head-option: needs --head PATH");
}

TEST(SpeculationFlags, AnOracleProfileIsAListOfProbabilities) {
  EXPECT_THAT(plan({.draft = "oracle", .oracle_profile = "0.8,0.6,1"}).oracle_profile,
              testing::ElementsAre(0.8, 0.6, 1));
  for (const char* wrong : {"0.8,", "x", "1.5", "-0.1", "0.5;0.5", "nan"})
    EXPECT_THAT(plan_complaint({.draft = "oracle", .oracle_profile = wrong}), testing::StartsWith("--oracle-profile:"))
        << wrong;
}

TEST(SpeculationFlags, ATreeFitsTheLargestStepOfTheDevice) {
  const SpeculationFlags asked = {.draft = "ngram", .nodes = 200};
  EXPECT_EQ(fit_tree(plan(asked).tree, 256, asked).nodes, 200);
  EXPECT_THROW(fit_tree(plan(asked).tree, 128, asked), InputError);
  const SpeculationFlags whole = {.draft = "ngram", .tree = "static:" + kTree};
  EXPECT_EQ(max_rows(fit_tree(plan(whole).tree, 64, whole)), 64);
}

}  // namespace
}  // namespace espalier

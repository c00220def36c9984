#include "engine/draft_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

const std::string kTree = std::string(ESPALIER_TEST_DATA) + "/../../data/trees/pangu_64.json";

const Places kPlaces = {.roots = {std::string(ESPALIER_TEST_DATA) + "/../.."}};

DraftPlan plan(const DraftOptions& options, const std::string& default_draft = "none") {
  return plan_drafting(options, kPlaces, default_draft);
}

TreeOptions tree_of(const DraftOptions& options, const TreeFacts& facts = {}) {
  return plan_tree(plan(options).tree, facts).options;
}

std::string plan_complaint(const DraftOptions& options, const std::string& default_draft = "none") {
  return complaint([&] { plan_drafting(options, kPlaces, default_draft); });
}

TEST(DraftPlan, WithoutAnyThereIsNoSpeculation) {
  EXPECT_TRUE(plan({}).plain());
  EXPECT_TRUE(plan({.draft = "none"}, "auto").plain());
  EXPECT_TRUE(plan({}, "auto").automatic);
  EXPECT_FALSE(plan({}, "auto").plain());
}

TEST(DraftPlan, TheDefaultsAreADynamicTreeOf16RowsAnd6Levels) {
  const TreeOptions tree = tree_of({.draft = "ngram"});
  EXPECT_EQ(tree.shape, TreeShape::dynamic);
  EXPECT_EQ(tree.nodes, 16);
  EXPECT_EQ(tree.depth, 6);
  EXPECT_EQ(tree.expand, 4);
  EXPECT_EQ(tree.branch, 4);
  EXPECT_EQ(tree_of({.draft = "ngram", .expand = 7}).branch, 7);
  EXPECT_EQ(tree_of({.draft = "ngram", .expand = 7, .branch = 2}).branch, 2);
}

TEST(DraftPlan, RowsAreChosenWhereThatIsAskedForOrTheDrafterIsChosenToo) {
  EXPECT_FALSE(plan({.draft = "ngram"}).tree.chooses_nodes);
  const DraftPlan chosen = plan({.draft = "ngram", .chooses_nodes = true});
  EXPECT_TRUE(chosen.tree.chooses_nodes);
  EXPECT_EQ(plan_tree(chosen.tree).options.nodes, kMostChosenRows);
  EXPECT_EQ(plan_tree(chosen.tree).options.depth, kMostChosenLevels);
  EXPECT_EQ(tree_of({.draft = "ngram", .chooses_nodes = true, .depth = 3}).depth, 3);
  EXPECT_TRUE(plan({.draft = "auto"}).tree.chooses_nodes);
  EXPECT_TRUE(plan({}, "auto").tree.chooses_nodes);
  EXPECT_FALSE(plan({.draft = "auto", .nodes = 16}).tree.chooses_nodes);
  EXPECT_EQ(tree_of({.draft = "auto", .nodes = 16}).nodes, 16);
  EXPECT_EQ(tree_of({.draft = "ngram", .tree = "static:" + kTree, .chooses_nodes = true}).nodes, 65);
  EXPECT_EQ(plan_complaint({.chooses_nodes = true}), "--draft-nodes: only with --draft, for example --draft ngram");
}

TEST(DraftPlan, AChosenNumberOfRowsIsChosenWithinTheDevicesLargestStep) {
  const DraftOptions options{.draft = "ngram", .chooses_nodes = true};
  EXPECT_EQ(tree_of(options, {.most_rows = 32}).nodes, 32);
  EXPECT_EQ(tree_of(options, {.most_rows = 128}).nodes, kMostChosenRows);
}

TEST(DraftPlan, DraftersAreUnitedByAPlusEachOnce) {
  EXPECT_THAT(plan({.draft = "eagle3+ngram", .heads = {"h"}}).drafters, testing::ElementsAre("eagle3", "ngram"));
  EXPECT_EQ(plan_complaint({.draft = "ngram+hostile+ngram"}), "--draft ngram+hostile+ngram: ngram is there twice");
  EXPECT_EQ(plan_complaint({.draft = "eagle+eagle3"}),
            "--draft eagle+eagle3: expected one of eagle, eagle2 and eagle3");
  EXPECT_EQ(plan_complaint({.draft = "ngram+auto"}), "--draft ngram+auto: auto stands alone");
  EXPECT_EQ(plan_complaint({.draft = "none+ngram"}), "--draft none+ngram: none stands alone");
  EXPECT_THAT(plan_complaint({.draft = "guess"}),
              testing::StartsWith("--draft: expected none, auto or one or several of"));
  EXPECT_THAT(plan_complaint({.draft = "ngram+"}), testing::EndsWith("got ''"));
  EXPECT_THAT(plan_complaint({.draft = ""}), testing::EndsWith("got ''"));
}

TEST(DraftPlan, AStaticTreeKeepsAllItsRowsUnlessToldOtherwise) {
  const TreeOptions whole = tree_of({.draft = "ngram", .tree = "static:" + kTree});
  EXPECT_EQ(whole.shape, TreeShape::fixed);
  EXPECT_EQ(whole.nodes, 65);
  EXPECT_EQ(max_rows(whole), 65);
  EXPECT_EQ(whole.depth, 4);
  const TreeOptions best = tree_of({.draft = "ngram", .tree = "static:" + kTree, .nodes = 16});
  EXPECT_EQ(best.nodes, 16);
  EXPECT_EQ(best.choices->size(), 16);
  const TreeOptions flat = tree_of({.draft = "ngram", .tree = "static:" + kTree, .depth = 1});
  EXPECT_EQ(flat.depth, 1);
  EXPECT_EQ(flat.choices->depth(), 1);
  EXPECT_EQ(max_rows(tree_of({.draft = "ngram", .tree = "static:" + kTree, .nodes = 1})), 1);
  const TreeOptions none = tree_of({.draft = "ngram", .tree = "static:" + kTree, .depth = 0});
  EXPECT_EQ(none.nodes, 1) << "no levels, no guesses: the root alone";
  EXPECT_EQ(none.depth, 0);
  EXPECT_EQ(tree_of({.draft = "ngram", .tree = "static:" + kTree, .nodes = 30, .depth = 3}).nodes, 30);
}

TEST(DraftPlan, AStaticTreeIsFoundByItsName) {
  const TreeOptions eagle1 = tree_of({.draft = "ngram", .tree = "static:eagle1_25"});
  EXPECT_EQ(eagle1.nodes, 26);
  EXPECT_THAT(eagle1.choices->level_sizes(), testing::ElementsAre(4, 8, 8, 3, 2));
  EXPECT_EQ(tree_of({.draft = "ngram", .tree = "static:vicuna_7b_stage2"}).nodes, 64);
  EXPECT_EQ(tree_of({.draft = "ngram", .tree = "static"}).nodes, 65);
  EXPECT_THAT(
      plan_complaint({.draft = "ngram", .tree = "static:oak"}),
      testing::StartsWith("--tree static:oak: no such file or name, expected one of eagle1_25, mc_sim_7b_63, "));
}

TEST(DraftPlan, AStaticTreeIsCutToWhatTheDraftersCanFillInOneLine) {
  const auto planned = [](const TreeFacts& facts, std::optional<int> nodes = {}, std::optional<int> depth = {}) {
    const TreeWish wish =
        plan({.draft = "ngram", .tree = "static:vicuna_7b_stage2", .nodes = nodes, .depth = depth}).tree;
    return plan_tree(wish, facts);
  };
  const PlannedTree shallow = planned({.levels = 3});
  EXPECT_EQ(shallow.remark, "tree vicuna_7b_stage2: 4 levels, the heads have 3: cut to 57 rows");
  EXPECT_THAT(shallow.options.choices->level_sizes(), testing::ElementsAre(10, 23, 23));
  EXPECT_EQ(shallow.options.nodes, 57);
  EXPECT_EQ(shallow.options.depth, 3);
  const PlannedTree narrow = planned({.guesses = 2});
  EXPECT_EQ(narrow.remark, "tree vicuna_7b_stage2: 10 guesses below a node, there are 2: cut to 18 rows");
  EXPECT_EQ(narrow.options.choices->ranks(), 2);
  EXPECT_EQ(narrow.options.nodes, 18);
  const PlannedTree both = planned({.levels = 1, .guesses = 4});
  EXPECT_EQ(both.remark,
            "tree vicuna_7b_stage2: 4 levels, the heads have 1, 10 guesses below a node, there are 4: cut to 5 rows");
  EXPECT_THAT(both.options.choices->level_sizes(), testing::ElementsAre(4));
  EXPECT_EQ(planned({.levels = 4, .guesses = 10}).remark, "") << "it fits";
}

TEST(DraftPlan, WhatTheUserCutFromAStaticTreeNeedsNoWords) {
  const auto planned = [](const DraftOptions& options) {
    DraftOptions of_tree = options;
    of_tree.draft = "ngram", of_tree.tree = "static:" + kTree;
    return plan_tree(plan(of_tree).tree, {.levels = 3, .guesses = 6});
  };
  EXPECT_EQ(planned({.nodes = 16}).remark, "") << "the sixteen best have three levels";
  EXPECT_EQ(planned({.nodes = 16}).options.nodes, 16);
  EXPECT_EQ(planned({.depth = 0}).remark, "");
  EXPECT_THAT(planned({.depth = 3}).remark, testing::Not(testing::HasSubstr("levels")));
  EXPECT_EQ(planned({.nodes = 30}).options.nodes, 30) << "of what the heads can fill";
  EXPECT_THAT(planned({.nodes = 30}).remark,
              testing::StartsWith("tree " + kTree + ": 4 levels, the heads have 3: cut"));
}

TEST(DraftPlan, NoDrafterIsAskedForMoreGuessesThanATreeMayHaveRows) {
  const TemporaryFolder folder;
  const std::string wide = folder.write("wide.json", "[[0], [256], [255], [0, 300]]").string();
  const PlannedTree planned = plan_tree(plan({.draft = "ngram", .tree = "static:" + wide}).tree, {.guesses = 49152});
  EXPECT_EQ(planned.options.nodes, 3);
  EXPECT_EQ(planned.remark, "tree " + wide + ": 301 guesses below a node, there are 256: cut to 3 rows");
}

TEST(DraftPlan, AChainHasOneGuessPerLevel) {
  const TreeOptions chain = tree_of({.draft = "ngram", .tree = "chain", .nodes = 4});
  EXPECT_EQ(chain.shape, TreeShape::chain);
  EXPECT_EQ(max_rows(chain), 4);
  EXPECT_EQ(max_rows(tree_of({.draft = "ngram", .tree = "chain"})), 7);
}

TEST(DraftPlan, ATreeThatIsNoneIsNamed) {
  EXPECT_EQ(plan_complaint({.draft = "ngram", .tree = "bush"}),
            "--tree: expected chain, static, static:NAME, static:FILE or dynamic, got 'bush'");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .tree = "static:"}),
            "--tree static:NAME: the name is missing, or a file");
  EXPECT_THAT(plan_complaint({.draft = "ngram", .tree = "static:no/such/tree.json"}),
              testing::HasSubstr("no/such/tree.json"));
  EXPECT_THAT(plan_complaint({.draft = "ngram", .tree = "static:" + std::string(ESPALIER_TEST_DATA) + "/digests.json"}),
              testing::HasSubstr("digests.json"));
}

TEST(DraftPlan, AFlagThatWouldDoNothingIsRefused) {
  EXPECT_EQ(plan_complaint({.draft = "ngram", .heads = {"h"}}),
            "--head: only with --draft eagle or medusa, got --draft ngram");
  EXPECT_EQ(plan_complaint({.heads = {"h"}}), "--head: only with --draft eagle or medusa, got --draft none");
  EXPECT_EQ(plan_complaint({.draft = "medusa", .heads = {"h"}, .window = 8}),
            "--draft-window: only with --draft eagle, got --draft medusa");
  EXPECT_EQ(plan_complaint({.draft = "medusa", .heads = {"h"}, .head_options = {"taps=1,2,3"}}),
            "--head-option: only with --draft eagle, got --draft medusa");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .head_weights = "file"}),
            "--head-weights: only with --draft eagle or medusa, got --draft ngram");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .vocabulary = 8}),
            "--draft-vocab: only with --draft eagle or medusa, got --draft ngram");
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

TEST(DraftPlan, ADrafterThatNeedsAFileSaysSo) {
  EXPECT_EQ(plan_complaint({.draft = "eagle3"}), "") << "a head may be found";
  EXPECT_EQ(plan_complaint({.draft = "model"}), "--draft model: needs --draft-model PATH");
  EXPECT_EQ(plan_complaint({.draft = "auto", .head_options = {"taps=1,2,3"}}), "--head-option: needs --head PATH");
}

TEST(DraftPlan, AnOracleProfileIsAListOfProbabilities) {
  EXPECT_THAT(plan({.draft = "oracle", .oracle_profile = "0.8,0.6,1"}).oracle_profile,
              testing::ElementsAre(0.8, 0.6, 1));
  for (const char* wrong : {"0.8,", "x", "1.5", "-0.1", "0.5;0.5", "nan"})
    EXPECT_THAT(plan_complaint({.draft = "oracle", .oracle_profile = wrong}), testing::StartsWith("--oracle-profile:"))
        << wrong;
}

TEST(DraftPlan, ATreeFitsTheLargestStepOfTheDevice) {
  const DraftOptions asked = {.draft = "ngram", .nodes = 200};
  EXPECT_EQ(tree_of(asked, {.most_rows = 256}).nodes, 200);
  EXPECT_THROW(tree_of(asked, {.most_rows = 128}), InputError);
  EXPECT_EQ(max_rows(tree_of({.draft = "ngram", .tree = "static:" + kTree}, {.most_rows = 64})), 64);
}

TEST(DraftPlan, ASuggestedTreeIsTakenWhereNothingElseIsSaid) {
  const TreeFacts facts{.suggestion = DraftSuggestion{.nodes = 12, .depth = 5, .expand = 3}};
  const auto planned = [&](const DraftOptions& options) { return plan_tree(plan(options).tree, facts); };
  EXPECT_EQ(planned({.draft = "auto"}).options.nodes, 12);
  EXPECT_EQ(planned({.draft = "auto"}).options.depth, 5);
  EXPECT_EQ(planned({.draft = "auto"}).options.branch, 3);
  EXPECT_FALSE(planned({.draft = "auto"}).chooses_nodes);
  EXPECT_EQ(planned({.draft = "auto", .nodes = 8, .depth = 2}).options.nodes, 8);
  EXPECT_EQ(planned({.draft = "auto", .nodes = 8, .depth = 2}).options.depth, 2);
  EXPECT_TRUE(planned({.draft = "auto", .chooses_nodes = true}).chooses_nodes);
  EXPECT_EQ(planned({.draft = "auto", .tree = "chain"}).options.shape, TreeShape::chain) << "the user's own";
}

TEST(DraftPlan, NumbersOutOfRangeAreRefusedWhoeverGivesThem) {
  EXPECT_EQ(plan_complaint({.draft = "ngram", .nodes = 0}), "--draft-nodes: expected 1 to 256, got 0");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .depth = -1}), "--draft-depth: expected 0 to 256, got -1");
  EXPECT_EQ(plan_complaint({.draft = "ngram", .expand = 257}), "--draft-expand: expected 1 to 256, got 257");
  EXPECT_EQ(plan_complaint({.draft = "eagle3", .window = 0}), "--draft-window: expected 1 or more, got 0");
  EXPECT_EQ(plan_complaint({.draft = "eagle3", .head_weights = "q4"}),
            "--head-weights: expected q8_0, file or f32, got 'q4'");
}

}  // namespace
}  // namespace espalier

// Who guesses ahead, and in which shape: the flags, and what they mean together. Nothing is loaded here
// (drafting.h does that), so contradictions are told before a model is read.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/draft_tree.h"
#include "model/head_files.h"

namespace espalier {

inline constexpr int kMaxDraftRows = 256;
// What a tree may grow to where its rows are chosen.
inline constexpr int kMostChosenRows = 64;
inline constexpr int kMostChosenLevels = 16;

struct SpeculationFlags {
  std::optional<std::string> draft = {};  // "eagle3+ngram"
  std::optional<std::string> tree = {};   // "static:FILE"
  std::optional<int> nodes = {};
  bool chooses_nodes = false;  // --draft-nodes auto
  std::optional<int> depth = {};
  std::optional<int> expand = {};
  std::optional<int> branch = {};
  std::vector<std::string> heads = {};
  std::vector<std::string> head_options = {};
  std::optional<std::string> head_weights = {};
  std::optional<std::int64_t> vocabulary = {};
  std::optional<std::int64_t> window = {};
  std::string draft_model = {};
  std::string oracle_profile = {};
};

// What the flags mean, complete.
struct DraftPlan {
  std::vector<std::string> drafters = {};  // by source bit; none: plain decoding
  bool automatic = false;                  // the best there is: a head that matches the teacher, else n-grams
  TreeOptions tree = {};
  bool chooses_nodes = false;  // rows are chosen round by round; the tree's are the most there are
  std::vector<std::string> heads = {};
  HeadOptions head_options = {};                // without weights
  std::optional<WeightMode> head_weights = {};  // nothing: what the mode says
  bool has_head_options = false;                // the user said something about the head
  std::int64_t window = 0;                      // 0: all
  std::string draft_model = {};
  std::vector<double> oracle_profile = {};

  bool plain() const { return drafters.empty() && !automatic; }
  bool has(std::string_view drafter) const;
};

// The shape alone.
TreeOptions plan_tree(const SpeculationFlags& flags);

// What commands mean without --draft.
inline constexpr const char* kDefaultDraft = "auto";

// default_draft: what is meant without --draft.
void add_speculation_flags(CLI::App& app, SpeculationFlags& flags, const std::string& default_draft);

// Throws InputError where flags are wrong or contradict each other; reads the file of a static tree.
DraftPlan plan_speculation(const SpeculationFlags& flags, const std::string& default_draft);

// The same tree within `rows` rows, the largest step of a device. Throws InputError where more were asked for by
// --draft-nodes N; a static tree that came without it keeps its best rows, a chosen number is chosen within them.
TreeOptions fit_tree(const TreeOptions& tree, std::int64_t rows, const SpeculationFlags& flags);

}  // namespace espalier

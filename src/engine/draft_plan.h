// Who guesses ahead, and in which shape: what can be asked for, and what it means together. Nothing is loaded here
// (drafting.h does that), so contradictions are told before a model is read. Messages name an option as the command
// line spells it: `nodes` is --draft-nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/draft_tree.h"
#include "engine/places.h"
#include "model/head_catalogue.h"
#include "model/head_files.h"

namespace espalier {

inline constexpr int kMaxDraftRows = 256;
// What a tree may grow to where its rows are chosen.
inline constexpr int kMostChosenRows = 64;
inline constexpr int kMostChosenLevels = 16;

struct DraftOptions {
  std::optional<std::string> draft = {};  // "eagle3+ngram"; "none"; "auto"
  std::optional<std::string> tree = {};   // "chain", "static", "static:NAME", "static:FILE", "dynamic"
  std::optional<int> nodes = {};
  bool chooses_nodes = false;  // rows are chosen round by round
  std::optional<int> depth = {};
  std::optional<int> expand = {};
  std::optional<int> branch = {};
  std::vector<std::string> heads = {};         // paths; none: those trained for the model are looked for
  std::vector<std::string> head_options = {};  // "taps=2,15,27"
  std::optional<std::string> head_weights = {};
  std::optional<std::int64_t> vocabulary = {};
  std::optional<std::int64_t> window = {};
  std::string draft_model = {};
  std::string oracle_profile = {};  // "0.8,0.6"
};

// What is asked of a tree, its file read. Whoever drafts may know better where nothing was said.
struct TreeWish {
  TreeShape shape = TreeShape::dynamic;
  bool shaped = false;                     // somebody asked for this shape
  std::optional<ChoiceTree> choices = {};  // of a fixed tree, all of it
  std::string choices_name = {};           // as its user knows it
  bool asked_for_choices = false;          // somebody named them, or their file
  std::optional<int> nodes = {};
  std::optional<int> depth = {};
  std::optional<int> expand = {};
  std::optional<int> branch = {};
  bool chooses_nodes = false;
  bool asked_to_choose = false;  // by the user, not by --draft auto

  bool sized() const { return nodes || asked_to_choose || depth || expand || branch; }
};
TreeWish wish_for_tree(const DraftOptions& options, const Places& places);

// What the drafters and the device, once they are open, say of a tree.
struct TreeFacts {
  bool fixed_budget = false;                       // steps are not measured: rows are chosen only where asked for
  std::optional<DraftSuggestion> suggestion = {};  // of the head that was chosen
  std::optional<ChoiceTree> choices = {};          // beside Medusa heads that draft alone
  std::optional<int> levels = {};                  // the most that the drafters can guess
  std::optional<std::int64_t> guesses = {};        // the most different ones below a node
  std::optional<std::int64_t> most_rows = {};      // of a step of the device
};

// The tree of a run.
struct PlannedTree {
  TreeOptions options = {};
  bool chooses_nodes = false;  // rows are chosen round by round; the tree's are the most there are
  std::string remark = {};     // one line where more was cut from a static tree than was asked for
};
// What was asked for beats a suggestion, and a tree of another shape is the user's own. Throws InputError where more
// rows were asked for than a step of the device has; a static tree that came without a number keeps its best rows, and
// loses what is deeper or wider than the drafters.
PlannedTree plan_tree(TreeWish wish, const TreeFacts& facts = {});

// What the options mean, complete.
struct DraftPlan {
  DraftOptions options = {};
  std::vector<std::string> drafters = {};  // by source bit; none: plain decoding
  bool automatic = false;                  // the best there is: a head that matches the teacher, else n-grams
  TreeWish tree = {};
  HeadOptions head_options = {};                // without weights
  std::optional<WeightMode> head_weights = {};  // nothing: what the mode says
  std::vector<double> oracle_profile = {};

  bool plain() const { return drafters.empty() && !automatic; }
  bool has(std::string_view drafter) const;
  bool has_eagle() const;  // of any generation
};

// What applications mean where nothing is said.
inline constexpr const char* kDefaultDraft = "auto";

// Throws InputError where options are wrong or contradict each other; reads the file of a static tree. default_draft:
// what is meant without `draft`.
DraftPlan plan_drafting(const DraftOptions& options, const Places& places,
                        const std::string& default_draft = kDefaultDraft);

}  // namespace espalier

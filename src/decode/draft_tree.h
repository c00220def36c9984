// From drafters to a tree: which shape it has, and the growing of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "decode/drafter.h"
#include "tree/candidates.h"
#include "tree/choice_tree.h"
#include "tree/token_tree.h"

namespace espalier {

enum class TreeShape { chain, fixed, dynamic };
std::string_view name(TreeShape shape);  // "chain", "static", "dynamic"

struct TreeOptions {
  TreeShape shape = TreeShape::dynamic;
  std::optional<ChoiceTree> choices = {};  // of a fixed tree
  int nodes = 16;                          // rows, root included; 1 is plain decoding. Fixed: 0 keeps them all
  int depth = 6;                           // levels below the root = draft passes
  int expand = 4;                          // dynamic: nodes of a level that get children
  int branch = 0;                          // dynamic: children of an expanded node; 0: as many as `expand`
};

// The most rows a tree of these options has.
int max_rows(const TreeOptions& options);

// What the place of the round allows, whatever the options say.
struct RoundLimits {
  int rows = 0;
  int depth = 0;
  std::int32_t vocabulary = 0;  // guesses outside are dropped
};

// One sequence in the growing of trees.
struct GrowthJob {
  std::int32_t root = 0;
  RoundLimits limits = {};
  std::span<const std::unique_ptr<DraftSequence>> sequences;  // by drafter
  SourceSet drafters = ~SourceSet{0};                         // who grows a tree for it; they have had begin_round()
  std::optional<TreeShape> shape = {};                        // nothing: that of the options
};

// What a sequence wants expanded next.
struct Frontier {
  std::size_t job = 0;
  const Candidates* candidates = nullptr;
  std::span<const int> nodes = {};
};

// Decides, while a drafter grows its trees, whether it is asked for another level.
class LevelBuyer {
 public:
  virtual ~LevelBuyer() = default;
  // Drafter i begins, with the roots alone.
  virtual void begin(std::size_t drafter) = 0;
  // Whether to have a pass over these frontiers together. No ends the growing.
  virtual bool buys(std::span<const Frontier> frontiers) = 0;
  // The pass was had: their candidates hold what it brought.
  virtual void bought(std::span<const Frontier> frontiers) = 0;
};

// Each drafter grows a tree of the wanted shape for every job, all of them level by level together; the trees of a job
// are united path by path. Drafter i has source bit i. Without a buyer every level is bought.
std::vector<Candidates> grow_candidates(std::span<const GrowthJob> jobs, const TreeOptions& options,
                                        std::span<const std::unique_ptr<Drafter>> drafters,
                                        LevelBuyer* buyer = nullptr);

}  // namespace espalier

// What a drafter does inside a round that stays on the device (resident_rounds.h): before the launch it fills tables of
// its own; then, level by level, it says its guesses for all nodes that are expanded. A drafter that cannot do this
// has its rounds driven from the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/drafter.h"
#include "decode/padding_trees.h"
#include "device/device.h"
#include "device/round_ops.h"

namespace espalier {

// Of a recording: beside it nothing decides which ops are called, and with which views.
struct ResidentShape {
  std::int64_t trees = 0;
  std::int64_t rows = 0;           // of the largest tree
  int depth = 0;                   // levels
  std::int64_t block_columns = 0;  // of the longest sequence
};

// Integers that the host writes before a launch, in one buffer with a fixed address, uploaded at once. Lists lie at the
// same places in every launch of one shape, if they are added in the same order.
class UploadedTables {
 public:
  // Room for so many. The device must outlive this.
  UploadedTables(Device& device, std::int64_t words);

  void clear() { words_.clear(); }
  View add(std::span<const std::int32_t> list);
  void upload();

 private:
  Device* device_;
  Tensor buffer_;
  std::vector<std::int32_t> words_;
};

// The teacher's features of all rows of the last round, which stay until the next: row s * rows + n is that of node n
// of tree s. Behind them there is a row for each tree that comes from a round of the host.
struct LastingFeatures {
  View taps = {};    // f32 [.., taps * hidden]; empty unless the drafter wants them
  View hidden = {};  // f32 [.., hidden]; likewise
  std::int64_t first_entry = 0;

  std::int64_t entry(std::int64_t tree) const { return first_entry + tree; }
};

// A round before its launch.
struct ResidentRound {
  // Of the trees; behind theirs stand those that pad the round. They have had begin_round(), and their branches are
  // open.
  std::span<DraftSequence* const> sequences;
  ResidentShape shape;
  const LastingFeatures& features;
  const PaddingTrees& padding;

  std::int64_t padding_trees() const { return shape.trees - std::ssize(sequences); }
};

// The trees of a recording while they grow.
struct ResidentTrees {
  ResidentShape shape;
  NodeTables nodes;    // as far as they are grown
  ConstView frontier;  // i32 [trees, width]: the nodes to expand; all 0 in level 1, which has width 1
  std::int64_t width = 1;
  std::int64_t offset = 0;        // of these nodes among all that were expanded below the roots
  std::int64_t prior_width = 0;   // of the level before, if that is not the roots'
  std::int64_t prior_offset = 0;  // likewise
  ConstView tree;                 // i32 [trees, width]: the number of each node's tree
  std::int32_t vocabulary = 0;    // guesses outside are dropped
  ConstView blocks;               // i32 [trees, shape.block_columns]
  std::int64_t block_size = 0;
  ConstView counting;  // i32: 0, 1, 2, ...
};

struct LevelGuesses {
  GuessTables guesses;
  ConstView row;  // i32 [trees, width]: whose guesses are those of a frontier's node
};

class ResidentDrafter {
 public:
  virtual ~ResidentDrafter() = default;

  // Whether its memory has a row for the root of a tree, before those of its other nodes.
  virtual bool root_has_row() const { return false; }
  // The most levels that it can guess for a sequence behind these tokens, the last of which is the root; 0: none.
  virtual int levels_behind(DraftSequence& /*sequence*/, std::span<const std::int32_t> /*tokens*/) const {
    return 1 << 20;
  }
  // Whether it wants the teacher's hidden states of all rows; taps are a wish of the drafter's (drafter.h).
  virtual bool wants_hidden() const { return false; }
  // The most words that prepare() adds for so many trees.
  virtual std::int64_t table_words(const ResidentShape& largest) const = 0;
  // Before a launch. May compute what the recording has no room for.
  virtual void prepare(const ResidentRound& round, UploadedTables& tables) = 0;
  // Inside of the recording, behind prepare(): level 1 first.
  virtual LevelGuesses guess(int level, const ResidentTrees& trees, const LastingFeatures& features) = 0;
};

}  // namespace espalier

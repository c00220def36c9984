// Rounds that stay on the device. From the drafter's first pass to the committed path a round is one recorded step: its
// trees grow, are verified, walked and committed by round ops (device/round_ops.h), with shapes that are fixed
// beforehand; rounds of some numbers of trees are padded to share a recording. The host uploads one buffer of tables,
// launches, and downloads paths, choices, trees and scores at once. Given the same rows and depth, trees and paths are
// those of rounds that the host drives, bit for bit.
//
// Where a draw looks further than the device has ranked, nothing of that tree is committed, and the host verifies it
// once more. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/draft_tree.h"
#include "decode/drafter.h"
#include "decode/padding_trees.h"
#include "decode/request.h"
#include "decode/resident_budget.h"
#include "decode/resident_drafter.h"
#include "device/round_ops.h"
#include "model/transformer.h"
#include "tree/candidates.h"
#include "tree/token_tree.h"

namespace espalier {

// One answer's part of a round. Its branch is open, and its drafter's sequence has had begin_round().
struct ResidentJob {
  DraftSequence* sequence = nullptr;
  const Branch* branch = nullptr;
  std::int32_t root = 0;
  std::int64_t prefix = 0;  // committed positions
  std::int64_t rows = 1;    // the most of its tree
  int depth = 0;            // likewise, levels
  const GenerateOptions* options = nullptr;
};

// What became of it.
struct ResidentVerdict {
  RowState outcome = RowState::decided;  // else nothing is committed, and there are no visits
  TokenTree tree;
  std::optional<Candidates> candidates = {};  // all that the drafter said, where that was asked for
  std::vector<std::int32_t> drafted = {};     // as DraftVerdict has it
  std::vector<Visit> visits = {};             // as far as the teacher's choices met children; the answer may end before
};

struct ResidentOptions {
  TreeOptions tree = {};
  int sequences = 1;             // at once
  std::int64_t branch_rows = 1;  // the most places behind the committed ones that a round of one sequence takes
  SourceSet sources = 1;         // the drafter's
};

class ResidentRounds {
 public:
  // Whether rounds of this drafter can stay on its device, in trees of this shape.
  static bool possible(Device& device, Drafter& drafter, const StepForm& form);

  // All of these must outlive this. The workspace has room for the rows of all trees, with logits and taps of each.
  ResidentRounds(const Transformer& model, KvCache& cache, Workspace& workspace, Drafter& drafter,
                 const ResidentOptions& options);

  // The most levels of a tree behind these tokens, the last of which is its root; 0: the drafter has nothing to say.
  int levels_behind(DraftSequence& sequence, std::span<const std::int32_t> tokens) const {
    return drafter_->levels_behind(sequence, tokens);
  }
  // The largest trees.
  ResidentChoice most() const {
    return {std::min<std::int64_t>(max_rows(options_.tree), levels_.back().nodes), static_cast<int>(levels_.size())};
  }

  // The trees of a round of so many jobs, with those that pad it.
  std::int64_t trees_for(std::int64_t jobs) const { return trees_of_round(*device_, jobs, options_.sequences); }
  // One round of all jobs. chosen: of the recording, no less than any job's. all: with all that the drafter said.
  std::vector<ResidentVerdict> run(std::span<const ResidentJob> jobs, const ResidentChoice& chosen, bool all);
  // Whether the last round took what such rounds take from then on: a device may need two of a shape to record it.
  bool settled() const { return runs_.at(key_) > kRunsToRecord; }
  // Of the last round, for whoever hears what is committed: row tree * rows + node.
  const LastingFeatures& features() const { return features_; }

 private:
  // A level of the shape that trees have: the same in every round.
  struct Level {
    Tensor entry, rank, listed;  // as GrowLevel has them; listed: of a fixed tree
    Tensor tree;                 // of each entry of the frontiers before it
    std::int64_t width = 1;      // entries of the frontier before it
    std::int64_t nodes = 0;      // with those of the levels before
    std::int64_t offset = 0;     // of the frontier's nodes among all below the roots
  };
  // What the host fills before a launch.
  struct Filled {
    ConstView root, levels, rows, prefix, top_k, seed, blocks;
  };
  // Elements of tables that lie in one buffer of each type.
  struct TableSizes {
    std::int64_t ints = 0, scores = 0;
  };
  // The tables of a shape: those that the host reads in each round, those that it reads now and then, and those between
  // ops.
  struct Tables {
    View count, outcome, size, path, choice, drafted;
    NodeTables tree, nodes;
    View last, token, state, kept, from, to, odd, even;
    PlacedRows rows;
    TableSizes always_read, read, all;  // each with those before
  };

  struct ReadNodes;

  void make_levels();
  void add_level(std::span<const std::int32_t> entry, std::span<const std::int32_t> rank,
                 std::span<const std::int32_t> listed);
  void allocate();
  Tables lay_out(const ResidentShape& shape) const;
  ResidentShape shape_of(std::span<const ResidentJob> jobs, const ResidentChoice& chosen) const;
  struct TreeLists;
  TreeLists list_trees(std::span<const ResidentJob> jobs, const ResidentShape& shape) const;
  void fill(std::span<const ResidentJob> jobs, const ResidentShape& shape);
  void upload_settings(std::span<const ResidentJob> jobs);
  ConstView setting(std::int64_t index) const;

  // The recording.
  void grow();
  void grow_level(int level);
  void choose();
  void verify();
  void walk_and_commit();
  void run_op(const RoundOp& op) { device_->round_ops()->run(op); }
  const Level& level(int number) const { return levels_[static_cast<std::size_t>(number) - 1]; }
  std::int64_t trees() const { return shape_.trees; }
  NodeTables grown(std::int64_t nodes) const;
  View frontier_behind(int number) const;
  PlaceTables places() const { return {.blocks = filled_.blocks, .block_size = cache_->block_size()}; }

  std::vector<ResidentVerdict> read(std::span<const ResidentJob> jobs, bool all);

  const Transformer* model_;
  KvCache* cache_;
  Workspace* workspace_;
  Device* device_;
  ResidentDrafter* drafter_;
  ResidentOptions options_;
  PaddingTrees padding_;
  std::vector<Level> levels_;
  std::vector<KvViews> layers_;  // of the teacher's memory
  Tensor ints_, scores_;         // of `Tables`
  Tensor settings_;              // f32 [3, sequences]: temperature, top_p, min_p
  Tensor counting_, zeros_;      // i32
  Tensor taps_, hidden_;
  LastingFeatures features_;
  std::optional<UploadedTables> uploaded_;
  std::vector<float> settings_there_;  // those that were uploaded last

  static constexpr std::int64_t kRunsToRecord = 2;
  std::map<StepKey, std::int64_t> runs_;  // how often each shape was run

  // Of the round.
  ResidentShape shape_;
  StepKey key_;
  Filled filled_;
  Tables tables_;
  std::vector<std::int32_t> read_ints_;  // room for what the host reads
  std::vector<double> read_scores_;
  std::unique_ptr<Recordings> recordings_;  // of all the above, so it goes first
};

}  // namespace espalier

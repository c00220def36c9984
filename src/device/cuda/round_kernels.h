// The ops of round_ops.h as launches on a stream, as kernels.h has those of device.h: plain addresses in device memory,
// shapes already checked. What writes tables holds the next kernel back, which may read tables before it waits.
#pragma once

#include <cstdint>

#include "device/cuda/kernels.h"

namespace espalier::cuda {

// A table whose rows may be strided; stride: elements from one row to the next.
template <typename T>
struct Table {
  T* data = nullptr;
  std::int64_t stride = 0;
};

// The tables that several ops have, as round_ops.h names them.
struct NodeArrays {
  Table<std::int32_t> token, parent, depth, row;
  Table<double> score;
  int trees = 0, nodes = 0;
};
struct GuessArrays {
  std::int32_t* token = nullptr;
  double* log_probability = nullptr;
  std::int32_t* count = nullptr;
  int k = 0;
};
struct PlaceArrays {
  const std::int32_t* blocks = nullptr;
  int block_columns = 0, block_size = 0;
};
struct RowArrays {
  std::int32_t *token = nullptr, *position = nullptr, *slot = nullptr, *sequence = nullptr, *begin = nullptr,
               *end = nullptr, *ancestor_count = nullptr, *ancestors = nullptr;
  std::int32_t* input = nullptr;  // null: not wanted
  int ancestor_columns = 0;
};

// Trees that fit into the shared memory of a block.
inline constexpr int kMostNodes = 4096;

// --- round_guesses.cu ------------------------------------------------------------------------------------------------
struct RankGuessesCall {
  ConstRows logits;
  const std::int32_t* target_ids = nullptr;  // null: none
  float scale = 1;
  std::int32_t vocabulary = 0;
  GuessArrays guesses;
};
// scratch: for k of a share and of a row
void rank_guesses(Queue queue, const RankGuessesCall& call, const VocabularyScratch& scratch);

// --- round_choices.cu ------------------------------------------------------------------------------------------------
inline constexpr int kRanks = 1024;  // kRankedTokens
struct ChooseTokensCall {
  ConstRows logits;
  const std::int32_t* position = nullptr;
  const float *temperature = nullptr, *top_p = nullptr, *min_p = nullptr;
  const std::int32_t *top_k = nullptr, *seed = nullptr;
  std::int32_t *token = nullptr, *state = nullptr;
  std::int64_t tree_rows = 0;
};
// scratch: for one of a share and kRanks of a row
void choose_tokens(Queue queue, const ChooseTokensCall& call, const VocabularyScratch& scratch);

// --- round_trees.cu --------------------------------------------------------------------------------------------------
struct GrowLevelCall {
  NodeArrays nodes;
  const std::int32_t *root = nullptr, *levels = nullptr, *entry = nullptr, *rank = nullptr, *frontier = nullptr,
                     *guess_row = nullptr;
  GuessArrays guesses;
  const std::int32_t* listed = nullptr;  // null: none
  std::int32_t* next = nullptr;          // null: not wanted
  int width = 0, frontier_columns = 0, next_columns = 0, level = 1, root_row = 0;
};
void grow_level(Queue queue, const GrowLevelCall& call);

struct ChooseRowsCall {
  NodeArrays nodes;
  const std::int32_t* rows = nullptr;
  NodeArrays tree;
  std::int32_t *drafted = nullptr, *size = nullptr;
};
void choose_rows(Queue queue, const ChooseRowsCall& call);

struct PlaceRowsCall {
  NodeArrays nodes;
  const std::int32_t* listed = nullptr;  // null: none
  const std::int32_t *first = nullptr, *root_position = nullptr, *begin = nullptr, *seed = nullptr;
  PlaceArrays places;
  RowArrays rows;
  int width = 0, offset = 0, window = 0, prior_rows = 0, prior_offset = 0;
};
void place_rows(Queue queue, const PlaceRowsCall& call);

struct WalkTreesCall {
  NodeArrays tree;
  const std::int32_t *choice = nullptr, *state = nullptr;
  std::int32_t *path = nullptr, *count = nullptr, *last = nullptr, *token = nullptr, *outcome = nullptr;
  int length = 0;
};
void walk_trees(Queue queue, const WalkTreesCall& call);

struct ListMovesCall {
  const std::int32_t *path = nullptr, *count = nullptr, *row = nullptr, *first = nullptr;
  PlaceArrays places;
  std::int32_t *from = nullptr, *to = nullptr, *kept = nullptr;
  int trees = 0, length = 0, tree_rows = 0;
};
void list_moves(Queue queue, const ListMovesCall& call);

struct CatchUpCall {
  const std::int32_t *path = nullptr, *count = nullptr, *choice = nullptr, *prefix = nullptr, *begin = nullptr;
  PlaceArrays places;
  RowArrays rows;
  std::int32_t *feature = nullptr, *seed = nullptr;
  int trees = 0, length = 0, tree_rows = 0, window = 0;
};
void catch_up(Queue queue, const CatchUpCall& call);

}  // namespace espalier::cuda

// The times of one loaded model: steps of the teacher over contexts of any length, the whole loop, and the host's work
// around a step. Every method runs something once and returns its wall time in seconds. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decode/batch.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "model/transformer.h"
#include "tree/tree_tensors.h"

namespace espalier {

// How long and how wide everything is, cut to what the model can hold.
struct BenchSizes {
  std::vector<std::int64_t> rows = {1, 2, 4, 8, 16, 32, 64};
  std::vector<std::int64_t> contexts = {128, 1024, 4096};
  std::int64_t prefill = 512;
  std::int64_t prompt = 128;             // of plain decoding
  std::int64_t answer = 128;             // tokens behind it
  std::vector<std::int64_t> users = {};  // of one batch, who decode together behind a prompt of that length
  std::vector<std::string> cuts = {};    // what was cut, one line each

  std::int64_t most_rows() const;
};
// Sorted and without repetitions. Throws InputError when a step does not fit the context at all.
BenchSizes cut_to_context(BenchSizes sizes, std::int64_t context);

// What ran, and the parts of it that were ops of the device.
struct OpSample {
  double whole = 0;
  OpSeconds ops = {};
};

// Steps behind contexts that were never computed: K and V are filled with random numbers, for the time of a step does
// not depend on them. A step is a tree in which node k hangs below node (k - 1) / 2.
class StepBench {
 public:
  // The engine must outlive this.
  StepBench(const OpenEngine& engine, const BenchSizes& sizes);
  StepBench(const StepBench&) = delete;
  StepBench& operator=(const StepBench&) = delete;

  // The logits of all rows, as verification needs them; one row of them is read.
  double verify_step(std::size_t context, std::int64_t rows);
  // The same, by ops. Requires an engine with a timed device.
  OpSample verify_step_by_ops(std::size_t context, std::int64_t rows);
  // `rows` more tokens of a prompt; only the last has logits.
  double prompt_step(std::size_t context, std::int64_t rows);

  // The host's work in a round with a tree of `rows` rows.
  double grow(std::int64_t rows);                            // from guesses that cost nothing to a tree
  double tensorise(std::size_t context, std::int64_t rows);  // tables of the tree, rows of the step
  double tables(std::size_t context, std::int64_t rows);     // the step's tables, uploaded
  double mask(std::size_t context, std::int64_t rows);       // a dense mask, which only eager attention needs
  double commit(std::size_t context, std::int64_t rows);     // of the deepest path

  std::int64_t kv_bytes() const;
  std::int64_t kv_bytes_per_token() const { return cache_.memory().slot_bytes(); }

 private:
  void fill_contexts();
  // Of a step, the device's padding included.
  std::int64_t most_rows() const { return rows_of_step(model_->device(), sizes_.most_rows()); }
  std::int64_t length(std::size_t context) const { return sizes_.contexts[context]; }
  TokenTree tree(std::int64_t rows) const;
  std::vector<Row> tree_rows(const Branch& branch, const TreeTensors& tensors) const;
  StepPlan write_rows(const Branch& branch, const TokenTree& tree);
  double run_step(std::span<const Row> rows);
  Branch begin(std::size_t context, std::int64_t rows);

  const Transformer* model_;
  TimedDevice* timed_;
  StepForm form_;
  BenchSizes sizes_;
  std::int64_t positions_;
  KvCache cache_;
  std::vector<SequenceId> sequences_;  // one per context
  Workspace workspace_;
  StepTables tables_;
  Tensor numbers_;  // K and V of rows that nobody has computed
  std::vector<float> logits_;
};

// The time of a round in its parts, the mean over the rounds of an answer.
struct RoundSample {
  RoundTimes times = {};
  double trace = 0;  // what a trace adds to the round: keeping it in memory
  double rows = 0;   // of its tree
};

// The decoding loop as users run it, sampler included, on made-up prompts.
class LoopBench {
 public:
  // OpenEngine and drafting must outlive this; without drafting there are no rounds to measure.
  LoopBench(const OpenEngine& engine, const Drafting* drafting, const BenchSizes& sizes,
            std::function<bool()> cancelled);

  double prefill();                            // a prompt of sizes.prefill tokens
  double plain_decoding(std::int64_t prompt);  // one token, the mean over an answer behind so many
  OpSample plain_decoding_by_ops();            // such an answer behind sizes.prompt tokens, without its first token
  RoundSample round();                         // with drafts
  // A step in which so many users decode greedily, each behind a prompt of his own.
  double users_step(std::int64_t users);

 private:
  std::vector<std::int32_t> prompt(std::int64_t length, std::int32_t first) const;
  std::int64_t user_steps() const;
  Batch& batch_of(std::int64_t users);
  void submit_users(Batch& batch, std::int64_t users, std::int64_t answer) const;
  GenerateResult generate(Batch& decoder, std::int64_t prompt, std::int64_t answer, GenerateEvents events);

  const OpenEngine* engine_;
  BenchSizes sizes_;
  std::function<bool()> cancelled_;
  Batch plain_;
  std::unique_ptr<Batch> drafted_;
  std::map<std::int64_t, std::unique_ptr<Batch>> of_users_;
  std::int32_t next_prompt_ = 0;  // every prompt begins with another token: nothing is left in the cache
};

}  // namespace espalier

// The drafters of a run with the weights behind them, opened as the plan says.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decode/oracle_drafter.h"
#include "engine/draft_plan.h"
#include "engine/engine.h"
#include "model/eagle_head.h"
#include "model/head_catalogue.h"
#include "model/medusa_head.h"

namespace espalier {

class Drafting {
 public:
  // Loads heads and draft model; heads that were not given are looked for in the engine's folders. The engine must
  // outlive this; the seed is for drafters that play dice. Throws InputError: a head of the wrong kind or of another
  // teacher, a draft model with another vocabulary, a tree beyond the device's largest step.
  Drafting(DraftPlan plan, const OpenEngine& engine, std::uint64_t seed);
  Drafting(const Drafting&) = delete;
  Drafting& operator=(const Drafting&) = delete;

  const DraftOptions& options() const { return plan_.options; }  // what was asked for
  // By source bit; none: plain decoding.
  const std::vector<std::string>& drafters() const { return drafters_; }
  std::string name() const;                              // "eagle3+ngram", "none"
  const std::string& reason() const { return reason_; }  // why these: "--draft ngram", "auto: ... was trained for ..."
  const std::vector<std::filesystem::path>& head_paths() const { return head_paths_; }  // of the heads that are loaded
  const TreeOptions& tree() const { return tree_.options; }
  bool chooses_nodes() const { return tree_.chooses_nodes; }  // rows are chosen round by round
  std::string budget() const;                                 // "16 rows", "up to 64 rows"
  // For any number of batches of so many sequences; drafters keep pointers into this object.
  Speculation speculation(int sequences = 1) const;

  // An oracle has to be told prompt and answer before it can replay them.
  bool wants_answer() const { return has("oracle"); }
  void learn(std::span<const std::int32_t> prompt, std::span<const std::int32_t> answer);

 private:
  bool has(std::string_view drafter) const;
  void open_heads();
  void open_given_head(const std::filesystem::path& path);
  bool wants(HeadKind kind) const;
  bool has_head(HeadKind kind) const;
  void open_trained_head(std::span<const HeadKind> kinds);
  void choose_best();
  void take_head(const std::filesystem::path& path);
  std::vector<std::filesystem::path> trained_heads(std::span<const HeadKind> kinds) const;
  void name_generation();
  void load_head(const HeadFiles& files, HeadKind kind, HeadOptions options);
  void open_draft_model();
  TreeFacts tree_facts() const;
  StepForm form() const;
  std::optional<ChosenBudget> budget_for(int sequences) const;
  std::unique_ptr<Drafter> make(const std::string& drafter, KvCache& cache, int sequences) const;

  const OpenEngine* engine_;
  DraftPlan plan_;
  std::uint64_t seed_;
  std::vector<std::string> drafters_;
  std::string reason_;
  std::vector<std::filesystem::path> head_paths_;
  std::filesystem::path choices_;     // beside the Medusa heads; empty: there are none
  std::int64_t head_vocabulary_ = 0;  // the largest of the heads'
  std::optional<DraftSuggestion> suggestion_;
  std::unique_ptr<const MedusaHead> medusa_;
  std::unique_ptr<const EagleHead> eagle_;
  std::optional<Transformer> draft_model_;
  PlannedTree tree_;
  KnownAnswers answers_;
  // What batches measured, for those made later; shared with the batches that may still be measuring.
  std::shared_ptr<std::optional<StepTimes>> measured_ = std::make_shared<std::optional<StepTimes>>();
};

// The same options, and what the plan will load besides the model, for whoever asks whether all of it fits on a device.
EngineOptions with_drafting(EngineOptions options, const DraftPlan& plan);

// Throws InputError with the first difference unless both write the same text for every token. `where`: the model that
// the second belongs to.
void check_same_vocabulary(const Tokenizer& teacher, const Tokenizer& draft, std::string_view where);

}  // namespace espalier

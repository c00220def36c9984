#include "cli/drafting.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "cli/drafting_costs.h"
#include "cli/head_search.h"
#include "cli/progress.h"
#include "cli/token_text.h"
#include "decode/draft_rows.h"
#include "decode/eagle3_drafter.h"
#include "decode/hostile_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"

namespace espalier {
namespace {

void pass_over(const std::filesystem::path& head, const InputError& error) {
  fmt::print(stderr, "espalier: passes over {}: {}\n", head.string(), error.what());
}

std::string searched_folders(const Engine& engine) {
  std::vector<std::string> folders;
  for (const auto& folder : engine.head_folders) folders.push_back(folder.string());
  return folders.empty() ? "heads" : fmt::format("{}", fmt::join(folders, ", "));
}

}  // namespace

Drafting::Drafting(const SpeculationFlags& flags, const DraftPlan& plan, const Engine& engine, std::uint64_t seed)
    : engine_(&engine),
      seed_(seed),
      window_(plan.window),
      oracle_profile_(plan.oracle_profile),
      drafters_(plan.drafters),
      tree_(plan.tree),
      chooses_nodes_(plan.chooses_nodes) {
  reason_ = flags.draft ? "--draft " + *flags.draft : "the default";
  if (plan.plain()) return;
  SpeculationFlags shape = flags;
  shape.chooses_nodes = plan.chooses_nodes;
  if (engine.modes.mode == "reference" && !flags.chooses_nodes) fix_budget(shape);
  fit_to_device(shape);
  if (plan.automatic) {
    choose_best(flags, plan, shape);
  } else {
    open_heads(plan);
    take_choices(flags, shape);
  }
  if (has("model")) open_draft_model(plan.draft_model);
  cut_to_heads(shape);
  fit_to_device(shape);
  if (engine.verbose) fmt::print(stderr, "drafts by {}: {}\n", name(), reason_);
}

bool Drafting::has(std::string_view drafter) const {
  return std::ranges::find(drafters_, drafter) != drafters_.end();
}

std::string Drafting::name() const {
  return drafters_.empty() ? "none" : fmt::format("{}", fmt::join(drafters_, "+"));
}

std::string Drafting::budget() const {
  return fmt::format("{}{} rows", chooses_nodes_ ? "up to " : "", max_rows(tree_));
}

// Whatever the drafters of the plan need, each once: those that were given, else those trained for the model.
void Drafting::open_heads(const DraftPlan& plan) {
  for (const std::string& path : plan.heads) open_given_head(path, plan);
  if (has("eagle3") && !eagle3_) open_trained_head(HeadKind::eagle3, plan);
  if (has("medusa") && !medusa_) open_trained_head(HeadKind::medusa, plan);
}

void Drafting::open_given_head(const std::filesystem::path& path, const DraftPlan& plan) {
  const HeadFiles files = open_head(path);
  const HeadKind kind = classify_head(files);
  if (!has(espalier::name(kind)))
    input_error("--head {}: a head for --draft {}, got --draft {}", path.string(), espalier::name(kind), name());
  if (kind == HeadKind::eagle3 ? eagle3_ != nullptr : medusa_ != nullptr)
    input_error("--head {}: the second {} head, expected one", path.string(), espalier::name(kind));
  load_head(files, kind, plan.head_options, plan);
}

void Drafting::open_trained_head(HeadKind kind, const DraftPlan& plan) {
  const std::vector<std::filesystem::path> heads = trained_heads(kind);
  if (heads.empty())
    input_error("--draft {}: no {} head for {} in {}; --head PATH gives one", name(),
                kind == HeadKind::eagle3 ? "EAGLE-3" : "Medusa", engine_->path.string(), searched_folders(*engine_));
  load_head(open_head(heads.front()), kind, plan.head_options, plan);
  reason_ +=
      fmt::format("{} {} was trained for this model", reason_.ends_with("model") ? "," : ":", heads.front().string());
}

// Of the heads in the engine's folders; those that cannot be read are passed over, and said.
std::vector<std::filesystem::path> Drafting::trained_heads(HeadKind kind) const {
  std::vector<std::filesystem::path> heads;
  for (const HeadCard& card : heads_trained_for(engine_->path, engine_->head_folders, engine_->cache_folder)) {
    try {
      if (classify_head(open_head(card.path)) == kind) heads.push_back(card.path);
    } catch (const InputError& error) {
      pass_over(card.path, error);
    }
  }
  return heads;
}

// As the mode says where the user did not: the reference mode computes what is in the file.
void Drafting::load_head(const HeadFiles& files, HeadKind kind, HeadOptions options, const DraftPlan& plan) {
  const bool as_stored = engine_->modes.mode == "reference";
  options.weights = plan.head_weights.value_or(as_stored ? WeightMode::stored : WeightMode::q8_0);
  if (kind == HeadKind::eagle3) eagle3_ = std::make_unique<Eagle3Head>(*engine_->model, files, options);
  if (kind == HeadKind::medusa) medusa_ = std::make_unique<MedusaHead>(*engine_->model, files, options);
  if (kind == HeadKind::medusa) choices_ = files.folder / "choices.json";
  head_paths_.push_back(files.path);
  const std::int64_t vocabulary = kind == HeadKind::eagle3 ? eagle3_->draft_vocabulary() : medusa_->draft_vocabulary();
  if (plan.head_options.vocabulary && *plan.head_options.vocabulary > vocabulary)
    fmt::print(stderr, "espalier: --draft-vocab: {} guesses {} tokens, all are kept\n", files.path.string(),
               vocabulary);
}

// The first head that matches the teacher, of those given or, without any, of those trained for it, EAGLE-3 before
// Medusa; what does not match is passed over, and said. A path that does not exist, and options that would have to fit,
// are the user's own.
void Drafting::choose_best(const SpeculationFlags& flags, const DraftPlan& plan, SpeculationFlags& shape) {
  std::vector<std::filesystem::path> heads(plan.heads.begin(), plan.heads.end());
  for (HeadKind kind : {HeadKind::eagle3, HeadKind::medusa})
    if (plan.heads.empty()) std::ranges::copy(trained_heads(kind), std::back_inserter(heads));
  for (const std::filesystem::path& path : heads) {
    if (!std::filesystem::exists(path)) input_error("{}: no such file or folder, expected a draft head", path.string());
    try {
      const HeadFiles files = open_head(path);
      const HeadKind kind = classify_head(files);
      const DraftSuggestion suggestion = read_suggestion(files, kind, engine_->device->isa());
      HeadOptions options = plan.head_options;
      if (!options.vocabulary) options.vocabulary = suggestion.vocabulary;
      load_head(files, kind, options, plan);
      follow(suggestion, flags, shape);
      reason_ = fmt::format("auto: {} {} this model", path.string(), plan.heads.empty() ? "was trained for" : "fits");
      if (!suggestion.measured)
        reason_ += fmt::format("; its tree was measured on other instruction sets than {}", engine_->device->isa());
      return;
    } catch (const InputError& error) {
      if (plan.has_head_options) throw;
      pass_over(path, error);
    }
  }
  drafters_ = {"ngram"};
  reason_ = plan.heads.empty()
                ? fmt::format("auto: no head for {} in {}", engine_->path.string(), searched_folders(*engine_))
                : "auto: no --head fits this model";
}

// On the device that is made to be read, measuring what steps cost takes longer than an answer.
void Drafting::fix_budget(SpeculationFlags& shape) {
  shape.chooses_nodes = chooses_nodes_ = false;
  tree_ = plan_tree(shape);
}

// Flags beat suggestions, and a tree of another shape is the user's own.
void Drafting::follow(const DraftSuggestion& suggestion, const SpeculationFlags& flags, SpeculationFlags& shape) {
  drafters_ = suggestion.drafters;
  if (flags.tree) return;
  if (suggestion.nodes && !flags.nodes && !flags.chooses_nodes) {
    const auto buckets = engine_->device->row_buckets();
    const auto most = static_cast<int>(buckets.empty() ? kMaxDraftRows : buckets.back());
    shape.nodes = std::min(*suggestion.nodes, most);
    shape.chooses_nodes = chooses_nodes_ = false;
  }
  if (!flags.depth) shape.depth = suggestion.depth;
  if (!flags.expand) shape.expand = suggestion.expand;
  tree_ = plan_tree(shape);
}

void Drafting::open_draft_model(const std::string& path) {
  const std::filesystem::path found = find_model(path);
  const ModelText text = load_model_text(found);
  check_same_vocabulary(*engine_->text->tokenizer, *text.tokenizer, found.string());
  ProgressBar bar("loading the draft model");
  draft_model_ = load_transformer(*engine_->device, found,
                                  {.weights = engine_->weights, .progress = [&](double share) { bar.show(share); }});
}

// Medusa heads may bring the tree they do best with. It is theirs alone, and a user who says anything about the tree
// means another one.
void Drafting::take_choices(const SpeculationFlags& flags, SpeculationFlags& shape) {
  std::error_code ignored;
  if (drafters_.size() > 1 || choices_.empty() || !std::filesystem::exists(choices_, ignored)) return;
  const bool sized = flags.nodes || flags.chooses_nodes || flags.depth || flags.expand || flags.branch;
  if (flags.tree ? *flags.tree != "static" : sized) return;
  shape.tree = "static:" + choices_.string();
  tree_ = plan_tree(shape);
}

// With Medusa alone a tree has no more levels than there are heads; a static one still has as many rows as asked for.
void Drafting::cut_to_heads(SpeculationFlags flags) {
  if (!medusa_ || drafters_.size() > 1) return;
  const int heads = static_cast<int>(medusa_->heads());
  if (tree_.depth <= heads) return;
  tree_.depth = heads;
  if (tree_.shape != TreeShape::fixed) return;
  flags.depth = heads;
  tree_ = plan_tree(flags);
}

// No more rows than a step of the device takes.
void Drafting::fit_to_device(const SpeculationFlags& flags) {
  const auto buckets = engine_->device->row_buckets();
  if (!buckets.empty()) tree_ = fit_tree(tree_, buckets.back(), flags);
}

void Drafting::learn(std::vector<std::int32_t> prompt, const std::vector<std::int32_t>& answer) {
  answer_.tokens = std::move(prompt);
  answer_.tokens.insert(answer_.tokens.end(), answer.begin(), answer.end());
}

// Draft steps attend the way the teacher's do.
StepForm Drafting::form() const {
  const DecoderOptions& options = engine_->decoder;
  const bool eager = options.attention == AttentionOp::eager;
  const bool dense = options.mask == MaskChoice::automatic ? eager || engine_->device->prefers_dense_mask()
                                                           : options.mask == MaskChoice::dense;
  return {.attention = options.attention, .mask = dense ? MaskForm::dense : MaskForm::list};
}

std::function<std::unique_ptr<Drafter>()> Drafting::factory(const std::string& drafter) const {
  const auto vocabulary = static_cast<std::int32_t>(engine_->model->config().vocabulary);
  const DecoderOptions& options = engine_->decoder;
  if (drafter == "ngram") return [] { return std::make_unique<NgramDrafter>(); };
  if (drafter == "hostile") return [=, this] { return std::make_unique<HostileDrafter>(seed_, vocabulary); };
  if (drafter == "oracle")
    return [=, this] {
      return std::make_unique<OracleDrafter>(
          &answer_, OracleOptions{.profile = oracle_profile_, .seed = seed_, .vocabulary = vocabulary});
    };
  if (drafter == "medusa")
    return [this] { return std::make_unique<MedusaDrafter>(*medusa_, static_cast<int>(most_guesses(tree_))); };
  if (drafter == "eagle3")
    return [&options, this] {
      return std::make_unique<Eagle3Drafter>(*eagle3_, Eagle3DrafterOptions{.context = options.context,
                                                                            .kv_type = options.kv_type,
                                                                            .window = window_,
                                                                            .form = form(),
                                                                            .kv = options.kv,
                                                                            .tree = tree_,
                                                                            .invariants = options.invariants});
    };
  check(drafter == "model", "no drafter {}", drafter);
  return [&options, this] {
    return std::make_unique<ModelDrafter>(
        *draft_model_, ModelDrafterOptions{.context = std::min(options.context, draft_model_->config().context),
                                           .kv_type = options.kv_type,
                                           .form = form(),
                                           .kv = options.kv,
                                           .tree = tree_,
                                           .invariants = options.invariants});
  };
}

Speculation Drafting::speculation() const {
  if (drafters_.empty()) return {};
  std::vector<std::function<std::unique_ptr<Drafter>()>> factories;
  for (const std::string& drafter : drafters_) factories.push_back(factory(drafter));
  Speculation speculation{.tree = tree_, .drafters = [factories] {
                            DrafterSet drafters;
                            for (const auto& make : factories) drafters.push_back(make());
                            return drafters;
                          }};
  if (chooses_nodes_) speculation.budget = chosen_budget();
  return speculation;
}

// With the step times of an earlier run where there are some.
ChosenBudget Drafting::chosen_budget() const {
  ChosenBudget budget;
  if (!engine_->cache_folder) return budget;
  const StepTimesFile file(*engine_->cache_folder, step_times_key(*engine_, eagle3_ != nullptr, max_rows(tree_)));
  budget.times = file.load();
  if (engine_->verbose)
    fmt::print(stderr, "step times: {} {}\n", budget.times ? "from" : "measured, for", file.path().string());
  budget.on_measured = [file](const StepTimes& times) { file.save(times); };
  return budget;
}

void check_same_vocabulary(const Tokenizer& teacher, const Tokenizer& draft, std::string_view where) {
  if (draft.vocabulary_size() != teacher.vocabulary_size())
    input_error("{}: another vocabulary: {} tokens, expected the {} of the model", where, draft.vocabulary_size(),
                teacher.vocabulary_size());
  for (TokenId id = 0; id < teacher.vocabulary_size(); ++id) {
    const std::string expected = teacher.bytes(id, false), got = draft.bytes(id, false);
    if (got != expected)
      input_error("{}: another vocabulary: token {} is {}, expected {} as in the model", where, id, quoted_token(got),
                  quoted_token(expected));
  }
}

}  // namespace espalier

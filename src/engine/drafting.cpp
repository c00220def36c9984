#include "engine/drafting.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "decode/draft_rows.h"
#include "decode/drafter_names.h"
#include "decode/eagle_drafter.h"
#include "decode/hostile_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "decode/step_timing.h"
#include "engine/head_search.h"
#include "engine/step_times_file.h"
#include "text/token_text.h"

namespace espalier {
namespace {

constexpr HeadKind kEagle[] = {HeadKind::eagle3, HeadKind::eagle2}, kMedusa[] = {HeadKind::medusa};
constexpr HeadKind kBestFirst[] = {HeadKind::eagle3, HeadKind::eagle2, HeadKind::medusa};

std::string_view spoken_name(HeadKind kind) {
  if (kind == HeadKind::medusa) return "Medusa";
  return kind == HeadKind::eagle3 ? "EAGLE-3" : "EAGLE-2";
}

void pass_over(const std::filesystem::path& head, const InputError& error, Listener& listener) {
  listener.remark(fmt::format("passes over {}: {}", head.string(), error.what()));
}

std::string searched_folders(const OpenEngine& engine) {
  std::vector<std::string> folders;
  for (const auto& folder : engine.places.heads) folders.push_back(folder.string());
  return folders.empty() ? "heads" : fmt::format("{}", fmt::join(folders, ", "));
}

}  // namespace

EngineOptions with_drafting(EngineOptions options, const DraftPlan& plan) {
  options.beside.assign(plan.options.heads.begin(), plan.options.heads.end());
  if (!plan.options.draft_model.empty()) options.beside.emplace_back(plan.options.draft_model);
  options.trained_heads = plan.options.heads.empty() && (plan.automatic || plan.has_eagle() || plan.has("medusa"));
  return options;
}

Drafting::Drafting(DraftPlan plan, const OpenEngine& engine, std::uint64_t seed)
    : engine_(&engine), plan_(std::move(plan)), seed_(seed), drafters_(plan_.drafters) {
  reason_ = options().draft ? "--draft " + *options().draft : "the default";
  if (plan_.plain()) {
    tree_ = plan_tree(plan_.tree);
    return;
  }
  plan_.automatic ? choose_best() : open_heads();
  if (has("model")) open_draft_model();
  tree_ = plan_tree(plan_.tree, tree_facts());
  if (!tree_.remark.empty()) engine.listener->remark(tree_.remark);
  engine.listener->detail(fmt::format("drafts by {}: {}", name(), reason_));
}

bool Drafting::has(std::string_view drafter) const {
  return std::ranges::find(drafters_, drafter) != drafters_.end();
}

std::string Drafting::name() const {
  return drafters_.empty() ? "none" : fmt::format("{}", fmt::join(drafters_, "+"));
}

std::string Drafting::budget() const {
  return fmt::format("{}{} rows", chooses_nodes() ? "up to " : "", max_rows(tree()));
}

// Whatever the drafters of the plan need, each once: those that were given, else those trained for the model.
void Drafting::open_heads() {
  for (const std::string& path : options().heads) open_given_head(path);
  std::vector<HeadKind> generations;
  std::ranges::copy_if(kEagle, std::back_inserter(generations), [this](HeadKind kind) { return wants(kind); });
  if (!generations.empty() && !eagle_) open_trained_head(generations);
  if (has("medusa") && !medusa_) open_trained_head(kMedusa);
  name_generation();
}

// --draft eagle takes either, and says which.
void Drafting::name_generation() {
  const auto open = std::ranges::find(drafters_, "eagle");
  if (open == drafters_.end()) return;
  *open = eagle_->name();
  engine_->listener->remark(fmt::format("drafts with an {} head", spoken_name(eagle_->kind())));
}

bool Drafting::wants(HeadKind kind) const {
  return has(espalier::name(kind)) || (kind != HeadKind::medusa && has("eagle"));
}

bool Drafting::has_head(HeadKind kind) const {
  return kind == HeadKind::medusa ? medusa_ != nullptr : eagle_ != nullptr;
}

void Drafting::open_given_head(const std::filesystem::path& path) {
  const HeadFiles files = open_head(path);
  const HeadKind kind = classify_head(files);
  if (!wants(kind))
    input_error("--head {}: a head for --draft {}, got --draft {}", path.string(), espalier::name(kind), name());
  if (has_head(kind))
    input_error("--head {}: a second {} head, expected one", path.string(),
                kind == HeadKind::medusa ? "Medusa" : "EAGLE");
  load_head(files, kind, plan_.head_options);
}

void Drafting::open_trained_head(std::span<const HeadKind> kinds) {
  const std::vector<std::filesystem::path> heads = trained_heads(kinds);
  if (heads.empty())
    input_error("--draft {}: no {} head for {} in {}; --head PATH gives one", name(),
                kinds.size() > 1 ? "EAGLE" : spoken_name(kinds.front()), engine_->path.string(),
                searched_folders(*engine_));
  const HeadFiles files = open_head(heads.front());
  load_head(files, classify_head(files), plan_.head_options);
  reason_ +=
      fmt::format("{} {} was trained for this model", reason_.ends_with("model") ? "," : ":", heads.front().string());
}

// Of the heads in the engine's folders, kind by kind; those that cannot be read are passed over, and said.
std::vector<std::filesystem::path> Drafting::trained_heads(std::span<const HeadKind> kinds) const {
  std::vector<std::pair<HeadKind, std::filesystem::path>> known;
  for (const HeadCard& card : heads_trained_for(engine_->path, engine_->places.heads, engine_->places.cache)) {
    try {
      known.emplace_back(classify_head(open_head(card.path)), card.path);
    } catch (const InputError& error) {
      pass_over(card.path, error, *engine_->listener);
    }
  }
  std::vector<std::filesystem::path> heads;
  for (HeadKind wanted : kinds)
    for (const auto& [kind, path] : known)
      if (kind == wanted) heads.push_back(path);
  return heads;
}

// As the mode says where the user did not: the reference mode computes what is in the file.
void Drafting::load_head(const HeadFiles& files, HeadKind kind, HeadOptions wanted) {
  const bool as_stored = engine_->modes.mode == "reference";
  wanted.weights = plan_.head_weights.value_or(as_stored ? WeightMode::stored : WeightMode::q8_0);
  if (kind == HeadKind::medusa) {
    medusa_ = std::make_unique<MedusaHead>(*engine_->model, files, wanted);
    choices_ = files.folder / "choices.json";
  } else {
    eagle_ = std::make_unique<EagleHead>(*engine_->model, files, wanted);
  }
  head_paths_.push_back(files.path);
  const std::int64_t vocabulary = kind == HeadKind::medusa ? medusa_->draft_vocabulary() : eagle_->draft_vocabulary();
  head_vocabulary_ = std::max(head_vocabulary_, vocabulary);
  if (options().vocabulary && *options().vocabulary > vocabulary)
    engine_->listener->remark(
        fmt::format("--draft-vocab: {} guesses {} tokens, all are kept", files.path.string(), vocabulary));
}

// The first head that matches the teacher, of those given or, without any, of those trained for it, EAGLE-3 before
// EAGLE-2 before Medusa; what does not match is passed over, and said. A path that does not exist, and options that
// would have to fit, are the user's own.
void Drafting::choose_best() {
  const bool given = !options().heads.empty();
  std::vector<std::filesystem::path> heads(options().heads.begin(), options().heads.end());
  if (!given) heads = trained_heads(kBestFirst);
  for (const std::filesystem::path& path : heads) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
      input_error("{}: no such file or folder, expected a draft head", path.string());
    try {
      return take_head(path);
    } catch (const InputError& error) {
      if (!options().head_options.empty()) throw;
      pass_over(path, error, *engine_->listener);
    }
  }
  drafters_ = {"ngram"};
  reason_ = given ? "auto: no --head fits this model"
                  : fmt::format("auto: no head for {} in {}", engine_->path.string(), searched_folders(*engine_));
}

// With the drafters and the tree that it suggests.
void Drafting::take_head(const std::filesystem::path& path) {
  const HeadFiles files = open_head(path);
  const HeadKind kind = classify_head(files);
  const DraftSuggestion suggestion = read_suggestion(files, kind, engine_->device->isa());
  HeadOptions wanted = plan_.head_options;
  if (!wanted.vocabulary) wanted.vocabulary = suggestion.vocabulary;
  load_head(files, kind, wanted);
  drafters_ = suggestion.drafters;
  suggestion_ = suggestion;
  reason_ = fmt::format("auto: {} {} this model", path.string(), options().heads.empty() ? "was trained for" : "fits");
  if (!suggestion.measured)
    reason_ += fmt::format("; its tree was measured on other instruction sets than {}", engine_->device->isa());
}

void Drafting::open_draft_model() {
  const std::filesystem::path found = find_model(options().draft_model, engine_->places);
  const ModelText text = load_model_text(found);
  check_same_vocabulary(*engine_->text->tokenizer, *text.tokenizer, found.string());
  const auto show = [&](double share) { engine_->listener->progress("loading the draft model", share); };
  draft_model_ = load_transformer(*engine_->device, found, {.weights = engine_->weights, .progress = show});
}

TreeFacts Drafting::tree_facts() const {
  // On the device that is made to be read, measuring what steps cost takes longer than an answer.
  TreeFacts facts{.fixed_budget = engine_->modes.mode == "reference", .suggestion = suggestion_};
  const auto buckets = engine_->device->row_buckets();
  if (!buckets.empty()) facts.most_rows = buckets.back();
  const bool heads_alone = drafters_.size() == head_paths_.size();
  facts.guesses = heads_alone ? head_vocabulary_ : engine_->model->config().vocabulary;
  if (!medusa_ || drafters_.size() > 1) return facts;
  facts.levels = static_cast<int>(medusa_->heads());
  std::error_code ignored;
  if (!plan_.automatic && std::filesystem::exists(choices_, ignored)) facts.choices = ChoiceTree::read(choices_, {});
  return facts;
}

void Drafting::learn(std::span<const std::int32_t> prompt, std::span<const std::int32_t> answer) {
  answers_.learn(prompt, answer);
}

// Draft steps attend the way the teacher's do.
StepForm Drafting::form() const {
  const DecoderOptions& options = engine_->decoder;
  const bool eager = options.attention == AttentionOp::eager;
  const bool dense = options.mask == MaskChoice::automatic ? eager || engine_->device->prefers_dense_mask()
                                                           : options.mask == MaskChoice::dense;
  return {.attention = options.attention, .mask = dense ? MaskForm::dense : MaskForm::list};
}

std::unique_ptr<Drafter> Drafting::make(const std::string& drafter, KvCache& cache, int sequences) const {
  const auto vocabulary = static_cast<std::int32_t>(engine_->model->config().vocabulary);
  const DecoderOptions& options = engine_->decoder;
  if (drafter == "ngram") return std::make_unique<NgramDrafter>();
  if (drafter == "hostile") return std::make_unique<HostileDrafter>(seed_, vocabulary);
  if (drafter == "oracle")
    return std::make_unique<OracleDrafter>(
        &answers_, OracleOptions{.profile = plan_.oracle_profile, .seed = seed_, .vocabulary = vocabulary});
  if (drafter == "medusa")
    return std::make_unique<MedusaDrafter>(*medusa_, static_cast<int>(most_guesses(tree())), sequences);
  if (names_eagle(drafter))
    return std::make_unique<EagleDrafter>(*eagle_, cache,
                                          EagleDrafterOptions{.context = options.context,
                                                              .kv_type = options.kv_type,
                                                              .window = plan_.options.window.value_or(0),
                                                              .form = form(),
                                                              .tree = tree(),
                                                              .sequences = sequences,
                                                              .invariants = options.invariants});
  check(drafter == "model", "no drafter {}", drafter);
  return std::make_unique<ModelDrafter>(
      *draft_model_, cache,
      ModelDrafterOptions{.context = std::min(options.context, draft_model_->config().context),
                          .kv_type = options.kv_type,
                          .form = form(),
                          .tree = tree(),
                          .sequences = sequences,
                          .invariants = options.invariants});
}

Speculation Drafting::speculation(int sequences) const {
  if (drafters_.empty()) return {.budget = budget_for(sequences)};
  Speculation speculation{.tree = tree(), .drafters = [this](KvCache& cache, int sequences) {
                            DrafterSet set;
                            for (const std::string& drafter : drafters_) set.push_back(make(drafter, cache, sequences));
                            return set;
                          }};
  const DType kv_type = engine_->decoder.kv_type;
  if (eagle_) speculation.memories.push_back(eagle_->kv_shape(kv_type));
  if (has("model")) speculation.memories.push_back(draft_model_->kv_shape(kv_type));
  speculation.networks = eagle_ || medusa_ || has("model");
  speculation.budget = budget_for(sequences);
  return speculation;
}

// With the step times of an earlier batch or run where there are some. Where nothing is chosen, those who share steps
// want to know what these cost all the same; but on the device that is made to be read, that is not worth the time, and
// on one that stands in for another it would say nothing.
std::optional<ChosenBudget> Drafting::budget_for(int sequences) const {
  const bool cuts = !drafters_.empty() && chooses_nodes();
  if (engine_->device->is_stand_in()) return std::nullopt;
  if (!cuts && (sequences == 1 || engine_->modes.mode == "reference")) return std::nullopt;
  ChosenBudget budget{
      .cuts = cuts, .times = *measured_, .on_measured = [kept = measured_](const StepTimes& times) { *kept = times; }};
  if (budget.times || !engine_->places.cache) return budget;
  const std::int64_t tree_rows = drafters_.empty() ? 1 : max_rows(tree());
  const std::int64_t rows = sequences == 1 ? tree_rows : std::max(tree_rows, kTimedRows);
  const StepTimesFile file(*engine_->places.cache, step_times_key(*engine_, eagle_ != nullptr, rows));
  budget.times = file.load();
  engine_->listener->detail(
      fmt::format("step times: {} {}", budget.times ? "from" : "measured, for", file.path().string()));
  budget.on_measured = [file, kept = measured_](const StepTimes& times) {
    *kept = times;
    file.save(times);
  };
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

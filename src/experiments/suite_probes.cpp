#include "experiments/suite_probes.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "experiments/attention_profile.h"
#include "experiments/mask_leakage.h"
#include "session/session.h"

namespace espalier {
namespace {

// The tokens of a conversation as its rounds commit them.
class CommittedTokens {
 public:
  explicit CommittedTokens(std::vector<std::int32_t> prompt) : tokens_(std::move(prompt)) {}

  // Those before the round's root.
  std::span<const std::int32_t> before(const Round& round) {
    if (static_cast<std::int64_t>(tokens_.size()) == round.prefix) tokens_.push_back(round.tree[0].token);
    return std::span(tokens_).first(static_cast<std::size_t>(round.prefix));
  }
  void add(const Round& round) {
    for (const Visit& visit : round.visits) tokens_.push_back(visit.token);
  }

 private:
  std::vector<std::int32_t> tokens_;
};

// Hears every round with the tokens before it; false: enough.
using RoundHearer = std::function<bool(std::span<const std::int32_t> prefix, const Round& round)>;

// Answers the prompts of an experiment, each with a fresh decoder, for whoever listens.
class Answers {
 public:
  Answers(const PlannedRun& run, const OpenEngine& engine, Speculation speculation)
      : engine_(engine),
        speculation_(std::move(speculation)),
        options_(run.request.text),
        chat_(chat_context(run.request.chat)) {}

  void give(const PlannedPrompts& prompts, const RoundHearer& hear) const {
    for (const PromptSet& set : prompts.sets)
      for (const EvalPrompt& prompt : set.prompts)
        if (!answer(prompt, hear)) return;
  }

 private:
  bool answer(const EvalPrompt& prompt, const RoundHearer& hear) const {
    Batch decoder(*engine_.model, engine_.decoder, speculation_);
    Session session(*engine_.text, decoder, chat_);
    bool goes_on = true;
    for (const std::string& user : prompt.turns) {
      std::vector<ChatMessage> messages = session.history();
      messages.push_back({"user", user});
      CommittedTokens tokens(encode_chat(*engine_.text, messages, chat_));
      const auto on_round = [&](const Round& round) {
        goes_on = goes_on && hear(tokens.before(round), round);
        tokens.add(round);
      };
      session.ask(user, options_, {.cancelled = [&] { return !goes_on; }, .on_round = on_round});
      if (!goes_on) return false;
    }
    return true;
  }

  const OpenEngine& engine_;
  Speculation speculation_;
  TextOptions options_;
  ChatContext chat_;
};

nlohmann::ordered_json leakage_json(const LeakageCounts& counts) {
  return {{"rounds", counts.rounds},
          {"rows", counts.rows},
          {"tokens_changed", counts.tokens_changed},
          {"logits", counts.logits},
          {"logits_changed", counts.logits_changed},
          {"rows_changed", counts.rows_changed},
          {"blind_rows", counts.blind_rows}};
}

std::optional<std::string> leakage_failure(const LeakageCounts& counts, std::int64_t rounds, const std::string& name) {
  if (counts.logits_changed > 0)
    return fmt::format("{}: {} logits know of tokens they must not see: {}", name, counts.logits_changed, counts.first);
  if (counts.blind_rows > 0)
    return fmt::format("{}: {} rows do not notice another root: the check is blind", name, counts.blind_rows);
  if (counts.rounds < rounds)
    return fmt::format("{}: the prompts gave {} rounds, expected {}", name, counts.rounds, rounds);
  return std::nullopt;
}

SettingResult probed(const PlannedRun& run, const Drafting& drafting, const nlohmann::ordered_json& figures) {
  SettingResult result;
  result.name = run.setting.name;
  result.drafter = drafting.name();
  result.flags = run.setting.flags;
  result.figures = figures.dump();
  return result;
}

// Nothing: cancelled.
std::optional<LeakageCounts> count_leaks(const PlannedExperiment& planned, const PlannedRun& run,
                                         const OpenEngine& engine, const Drafting& drafting,
                                         const std::function<bool()>& cancelled) {
  const Speculation speculation = drafting.speculation();
  const StepForm form = Batch(*engine.model, engine.decoder, speculation).form();
  LeakageProbe probe(*engine.model, {.context = engine.decoder.context,
                                     .kv_type = engine.decoder.kv_type,
                                     .form = form,
                                     .kv = engine.decoder.kv,
                                     .max_rows = max_rows(drafting.tree()),
                                     .seed = run.request.text.generate.seed});
  bool stopped = false;
  Answers(run, engine, speculation)
      .give(planned.prompts, [&](std::span<const std::int32_t> prefix, const Round& round) {
        stopped = cancelled();
        if (stopped) return false;
        probe.add(prefix, round.tree);
        return probe.counts().rounds < planned.experiment.rounds;
      });
  if (stopped) return std::nullopt;
  return probe.counts();
}

// The same model on a device that listens.
OpenEngine listening_engine(const OpenEngine& engine) {
  OpenEngine listening;
  listening.path = engine.path;
  listening.modes = engine.modes;
  listening.device = std::make_unique<AttentionProfile>(*engine.device);
  listening.text = load_model_text(engine.path);
  listening.model = load_transformer(*listening.device, engine.path, {.weights = engine.weights});
  listening.decoder = engine.decoder;
  listening.weights = engine.weights;
  listening.threads = engine.threads;
  listening.places = engine.places;
  listening.listener = engine.listener;
  return listening;
}

Speculation listened_to(Speculation speculation, AttentionProfile& profile) {
  speculation.drafters = [make = speculation.drafters, &profile](KvCache& cache, int sequences) {
    DrafterSet drafters = make(cache, sequences);
    for (auto& drafter : drafters) drafter = profiled(std::move(drafter), profile);
    return drafters;
  };
  return speculation;
}

}  // namespace

std::optional<ExperimentResult> probe_leakage(const PlannedExperiment& planned, OpenEngine& engine,
                                              const std::function<bool()>& cancelled) {
  ExperimentResult result{.profile = true};
  for (const PlannedRun& run : planned.runs) {
    const SettingModes modes(engine, run.request.engine.modes);
    const OpenDrafting open(run.request, engine);
    const auto counts = count_leaks(planned, run, engine, open.drafting, cancelled);
    if (!counts) return std::nullopt;
    result.settings.push_back(probed(run, open.drafting, leakage_json(*counts)));
    if (!result.failure) result.failure = leakage_failure(*counts, planned.experiment.rounds, run.setting.name);
  }
  return result;
}

std::optional<ExperimentResult> profile_attention(const PlannedExperiment& planned, const OpenEngine& engine,
                                                  const std::function<bool()>& cancelled) {
  ExperimentResult result{.profile = true};
  if (!engine.device->row_buckets().empty()) {
    result.skipped = fmt::format("{} pads its steps, and padding rows would be counted", engine.device->name());
    return result;
  }
  OpenEngine listening = listening_engine(engine);
  for (const PlannedRun& run : planned.runs) {
    const SettingModes modes(listening, run.request.engine.modes);
    const OpenDrafting open(run.request, listening);
    bool stopped = false;
    auto& heard = static_cast<AttentionProfile&>(*listening.device);
    Answers(run, listening, listened_to(open.drafting.speculation(), heard))
        .give(planned.prompts, [&](std::span<const std::int32_t>, const Round&) {
          stopped = cancelled();
          return !stopped;
        });
    if (stopped) return std::nullopt;
    result.settings.push_back(probed(run, open.drafting, to_json(heard.distances())));
    heard.forget();
  }
  return result;
}

}  // namespace espalier

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/eval_manifest.h"
#include "cli/eval_progress.h"
#include "cli/interrupt.h"
#include "eval/prompt_runner.h"
#include "eval/run_folder.h"
#include "format/untrusted_text.h"

namespace espalier {
namespace {

constexpr const char* kDefaultDraft = "auto";

// What can be told before a model is loaded.
void check_flags(const EvalFlags& flags, const DraftPlan& plan) {
  text_options(flags.sampling);
  if (flags.sampling.logprobs >= 0) throw InputError("--logprobs: not with eval run, which does not keep them");
  if (flags.baseline && plan.plain())
    throw InputError("--baseline: there is nothing to compare without a drafter, got --draft none");
  if (flags.raw && !(flags.chat.system.empty() && flags.chat.variables.empty()))
    throw InputError("--system, --template-variables: not with --raw, which uses no chat template");
}

PromptSet read_data(const EvalFlags& flags) {
  PromptSet set = read_prompt_set(flags.data);
  keep_prompts(set, flags.skip, flags.limit.value_or(INT64_MAX));
  for (const EvalPrompt& prompt : set.prompts)
    if (flags.raw && prompt.turns.size() > 1)
      input_error("{}:{}: {} turns, expected one with --raw, which has no history", flags.data, prompt.line,
                  prompt.turns.size());
  return set;
}

// Without a slash at the end: the name under which a run is prepared stands beside it.
std::filesystem::path run_path(const EvalFlags& flags) {
  const std::filesystem::path path = std::filesystem::path(flags.out).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

void check_place(const std::filesystem::path& path, bool resume) {
  if (!resume && std::filesystem::exists(path))
    input_error("-o {}: exists already, expected a new directory, or --resume", path.string());
  if (resume && !std::filesystem::exists(path / "manifest.json"))
    input_error("-o {}: no manifest.json, expected the directory of a run to resume", path.string());
}

// Step times that the first decoder measures are there for all later ones.
void keep_step_times(Speculation& speculation) {
  if (!speculation.budget) return;
  speculation.budget->on_measured = [&speculation, save = speculation.budget->on_measured](const StepTimes& times) {
    if (save) save(times);
    speculation.budget->times = times;
  };
}

// What is wrong with a turn is told with its place in the data.
template <typename Function>
auto placed(const PromptSet& data, const EvalPrompt& prompt, std::size_t turn, const Function& function) {
  try {
    return function();
  } catch (const InputError& error) {
    input_error("{}:{}: turn {}: {}", data.path.string(), prompt.line, turn + 1, error.what());
  }
}

// The turns of a run that are still to be answered, each into the folder as soon as it is there.
class Evaluation {
 public:
  Evaluation(const PromptSet& data, const EvalSetup& setup, RunFolder& folder)
      : data_(data), setup_(setup), folder_(folder) {
    check_finished_turns();
  }

  // False when Ctrl-C came.
  bool run() {
    const std::size_t finished = folder_.turns().size();
    if (static_cast<std::int64_t>(finished) == data_.turns()) return true;
    const EvalPrompt& first = data_.prompts.front();
    placed(data_, first, 0, [&] { warm_up(setup_, first, cancelled_); });
    EvalProgress progress(data_.turns(), static_cast<std::int64_t>(finished));
    std::size_t before = 0;  // turns of the prompts before this one
    for (const EvalPrompt& prompt : data_.prompts) {
      const std::size_t after = before + prompt.turns.size();
      if (after > finished && !answer(prompt, before, progress)) return false;
      before = after;
    }
    return true;
  }

 private:
  // They are those of the data, from its beginning.
  void check_finished_turns() const {
    std::size_t next = 0;
    const std::vector<TurnRecord>& turns = folder_.turns();
    for (const EvalPrompt& prompt : data_.prompts)
      for (std::size_t turn = 1; turn <= prompt.turns.size() && next < turns.size(); ++turn, ++next)
        if (turns[next].prompt_id != prompt.id || turns[next].turn != static_cast<std::int64_t>(turn))
          input_error("{}: turn {} is not that of prompt {}, as the data has it", folder_.path().string(), next + 1,
                      in_quotes(text_of(prompt.id)));
    if (next < turns.size())
      input_error("{}: {} turns, expected at most {}", folder_.path().string(), turns.size(), next);
  }

  // Turns that are in the folder already are answered once more for those behind them: history, caches and what
  // drafters have learned.
  bool answer(const EvalPrompt& prompt, std::size_t first, EvalProgress& progress) {
    PromptRunner runner(setup_, prompt.id);
    for (std::size_t i = 0; i < prompt.turns.size(); ++i) {
      std::optional<TurnRecord> turn = next_turn(runner, prompt, i);
      if (!turn) return false;
      if (first + i < folder_.turns().size()) {
        check_same_tokens(*turn, folder_.turns()[first + i]);
        continue;
      }
      folder_.add(std::move(*turn));
      progress.add(folder_.turns().back());
    }
    return true;
  }

  std::optional<TurnRecord> next_turn(PromptRunner& runner, const EvalPrompt& prompt, std::size_t i) const {
    if (cancelled_()) return std::nullopt;
    return placed(data_, prompt, i, [&] { return runner.next(prompt.turns[i], cancelled_); });
  }

  void check_same_tokens(const TurnRecord& now, const TurnRecord& then) const {
    if (now.tokens == then.tokens) return;
    input_error("{}: prompt {}, turn {}: other tokens than the run had, expected the same", folder_.path().string(),
                in_quotes(text_of(now.prompt_id)), now.turn);
  }

  const PromptSet& data_;
  const EvalSetup& setup_;
  RunFolder& folder_;
  InterruptGuard interrupt_;
  std::function<bool()> cancelled_ = [this] { return interrupt_.interrupted(); };
};

RunFolder open_folder(const std::filesystem::path& path, bool resume, const nlohmann::ordered_json& manifest) {
  if (!resume) return RunFolder::create(path, manifest);
  RunFolder folder = RunFolder::open(path, manifest);
  if (folder.finished()) return folder;
  nlohmann::ordered_json continued = folder.manifest();
  note_resumed(continued);
  folder.write_manifest(continued);
  return folder;
}

int interrupted(const RunFolder& folder, std::int64_t turns) {
  fmt::print(stderr, "espalier: interrupted after {} of {} turns; --resume goes on\n", folder.turns().size(), turns);
  return 1;
}

int run_eval(const EvalFlags& flags) {
  const DraftPlan plan = plan_speculation(flags.speculation, kDefaultDraft);
  check_flags(flags, plan);
  const std::filesystem::path path = run_path(flags);
  check_place(path, flags.resume);
  const PromptSet data = read_data(flags);
  const Engine engine = open_engine(flags.engine);
  Drafting drafting(flags.speculation, plan, engine, flags.sampling.seed);
  EvalSetup setup{.model = *engine.model,
                  .text = *engine.text,
                  .decoder = engine.decoder,
                  .speculation = drafting.speculation(),
                  .options = text_options(flags.sampling),
                  .chat = chat_context(flags.chat),
                  .system = flags.chat.system,
                  .raw = flags.raw,
                  .baseline = flags.baseline};
  keep_step_times(setup.speculation);
  if (drafting.wants_answer())
    setup.learn = [&](const auto& prompt, const auto& answer) { drafting.learn(prompt, answer); };
  RunFolder folder = open_folder(path, flags.resume, new_manifest(flags, data, engine, drafting, setup.chat.date_iso));
  nlohmann::ordered_json manifest = folder.manifest();
  setup.chat.date_iso = manifest.value("date", "");  // a resumed run goes on with the day it began
  if (!Evaluation(data, setup, folder).run()) return interrupted(folder, data.turns());
  const Summary summary = summarize(folder.turns());
  if (!folder.finished()) {
    note_end(manifest);
    folder.finish(manifest, summary);
  }
  print(summary_text(summary));
  flush_output();
  return summary.compared && summary.compared->difference ? 1 : 0;
}

}  // namespace

Command add_eval(CLI::App& app) {
  CLI::App* eval = app.add_subcommand("eval", "answer sets of prompts and measure it");
  eval->require_subcommand(1);
  CLI::App* run = eval->add_subcommand("run", "answer every prompt of a file into a directory (docs/eval.md)");
  auto flags = std::make_shared<EvalFlags>();
  run->add_option("--data", flags->data, "the prompts, one JSON object a line: an id, and turns or prompt")
      ->required()
      ->type_name("FILE");
  run->add_option("-o,--out", flags->out, "the directory of the run, which must not exist yet")
      ->required()
      ->type_name("DIR");
  run->add_flag("--resume", flags->resume, "go on with the run in DIR where it was interrupted");
  run->add_flag("--baseline", flags->baseline, "answer each turn without speculation too, and compare the tokens");
  run->add_option("--limit", flags->limit, "at most N prompts")
      ->check(CLI::Range(std::int64_t{1}, INT64_MAX))
      ->type_name("N");
  run->add_option("--skip", flags->skip, "leave out the first N prompts")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  run->add_flag("--raw", flags->raw, "the prompts as they are, without the model's chat template; single turns only");
  add_chat_flags(*run, flags->chat);
  add_speculation_flags(*run, flags->speculation, kDefaultDraft);
  add_engine_flags(*run, flags->engine);
  add_sampling_flags(*run, flags->sampling);
  return [flags] { return run_eval(*flags); };
}

}  // namespace espalier

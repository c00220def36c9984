#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/answer_screen.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_json.h"
#include "engine/near_tie.h"
#include "text/token_text.h"

namespace espalier {
namespace {

struct CompareFlags {
  PromptFlags prompt;
  EngineFlags engine;
  TextOptions text;
  DraftOptions drafting;
  bool json = false;
};

// One of the two answers, with its figures, after its decoder is gone.
struct Half {
  TextResult result;
  nlohmann::ordered_json json;

  const GenerateResult& generated() const { return result.generated; }
  bool cancelled() const { return generated().finish_reason == FinishReason::cancelled; }
};

constexpr std::int64_t kAlternatives = 20;  // among which the other token is looked for

// The first position at which the answers differ; one past the end of the shorter where it is a part of the other.
std::optional<std::size_t> first_difference(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  if (a == b) return std::nullopt;
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

bool equal(const Half& plain, const Half& drafted) {
  return plain.generated().tokens == drafted.generated().tokens &&
         plain.generated().finish_reason == drafted.generated().finish_reason;
}

// By how much, as log-probabilities, the plain answer liked its own token better than the other's where they part.
// Nothing: they do not part at a token, or it did not think of the other one.
std::optional<double> margin(const Half& plain, const Half& drafted) {
  const auto at = first_difference(plain.generated().tokens, drafted.generated().tokens);
  if (!at || *at >= plain.result.logprobs.size() || *at >= drafted.generated().tokens.size()) return std::nullopt;
  const Logprobs& liked = plain.result.logprobs[*at];
  const auto other = std::ranges::find(liked.top, drafted.generated().tokens[*at], &TokenLogprob::token);
  return other == liked.top.end() ? std::nullopt : std::optional(liked.chosen.logprob - other->logprob);
}

double ratio(const Half& plain, const Half& drafted) {
  const double base = tokens_per_second(plain.generated());
  return base > 0 ? tokens_per_second(drafted.generated()) / base : 0;
}

class Comparison {
 public:
  Comparison(const CompareFlags& flags, const OpenEngine& engine, Drafting& drafting)
      : flags_(flags), engine_(engine), drafting_(drafting), chat_(opening(flags.prompt, engine)) {}

  int run(const std::string& prompt) {
    headline("without speculation");
    const Half plain = answer(prompt, nullptr);
    if (plain.cancelled()) return interrupted();
    drafting_.learn(plain.result.prompt, plain.generated().tokens);
    headline(fmt::format("\nwith drafts by {}, {} tree of {}", drafting_.name(), name(drafting_.tree().shape),
                         drafting_.budget()));
    const Half drafted = answer(prompt, &drafting_);
    if (drafted.cancelled()) return interrupted();
    print(flags_.json ? json_text(to_json(plain, drafted)) : "\n" + verdict(plain, drafted) + "\n");
    flush_output();
    return equal(plain, drafted) || near_tie(plain, drafted) ? 0 : 1;
  }

 private:
  void headline(const std::string& text) const {
    if (!flags_.json) print(text + "\n");
  }

  bool row_independent() const { return engine_.device->row_independent(); }
  bool near_tie(const Half& plain, const Half& drafted) const {
    return !row_independent() && is_near_tie(margin(plain, drafted));
  }

  // A decoder of its own for each half, and never two at once: KV memory is large.
  Half answer(const std::string& prompt, Drafting* drafting) const {
    Answering answering(engine_, drafting, chat_);
    const InterruptGuard interrupt;
    AnswerScreen screen(interrupt, !flags_.json);
    Half half;
    TextOptions text = flags_.text;
    if (!row_independent()) text.generate.logprobs = std::max(text.generate.logprobs, kAlternatives);
    half.result = answering.speak(prompt, flags_.prompt.raw, text, screen.events());
    half.json = answer_json(
        half.result, {engine_, answering.decoder(), drafting ? drafting->name() : "none", flags_.text.generate.seed,
                      flags_.text.generate.logprobs >= 0, drafting ? drafting->reason() : "to compare with"});
    headline("");
    return half;
  }

  static int interrupted() {
    tell("espalier: interrupted\n");
    return kInterrupted;
  }

  std::string token_at(const Half& half, std::size_t at) const {
    const std::vector<std::int32_t>& tokens = half.generated().tokens;
    if (at >= tokens.size()) return fmt::format("the end ({})", name(half.generated().finish_reason));
    return fmt::format("{} {}", tokens[at], quoted_token(engine_.text->tokenizer->bytes(tokens[at], false)));
  }

  std::string difference(const Half& plain, const Half& drafted) const {
    const auto at = first_difference(plain.generated().tokens, drafted.generated().tokens);
    if (!at && equal(plain, drafted)) return fmt::format("tokens equal: {}", plain.generated().tokens.size());
    const std::size_t place = at.value_or(plain.generated().tokens.size());
    const std::string both =
        fmt::format("{}: {} without, {} with", place, token_at(plain, place), token_at(drafted, place));
    if (row_independent()) return "tokens DIFFER at position " + both;
    const std::optional<double> apart = margin(plain, drafted);
    const std::string how = apart ? fmt::format("{:.4f}", *apart) : "unknown";
    return near_tie(plain, drafted)
               ? fmt::format("tokens equal outside near-ties: one difference, margin {}, at position {}", how, both)
               : fmt::format("tokens DIFFER, margin {}, at position {}", how, both);
  }

  bool timed() const { return !engine_.device->is_stand_in(); }

  std::string verdict(const Half& plain, const Half& drafted) const {
    std::string line = difference(plain, drafted);
    if (timed())
      line += fmt::format("; {:.1f} tokens/s without, {:.1f} with speculation: {:.2f}x",
                          tokens_per_second(plain.generated()), tokens_per_second(drafted.generated()),
                          ratio(plain, drafted));
    return line + fmt::format("; accept_L {:.2f}", drafted.generated().accept_length());
  }

  nlohmann::ordered_json to_json(const Half& plain, const Half& drafted) const {
    nlohmann::ordered_json object = {{"equal", equal(plain, drafted)}, {"first_difference", nullptr}};
    if (const auto at = first_difference(plain.generated().tokens, drafted.generated().tokens))
      object["first_difference"] = {
          {"position", *at}, {"without", token_at(plain, *at)}, {"with", token_at(drafted, *at)}};
    if (!row_independent()) {
      const std::optional<double> apart = margin(plain, drafted);
      object["equal_outside_near_ties"] = equal(plain, drafted) || near_tie(plain, drafted);
      object["margin"] = apart ? nlohmann::ordered_json(*apart) : nlohmann::ordered_json(nullptr);
    }
    object["ratio"] = timed() ? nlohmann::ordered_json(ratio(plain, drafted)) : nlohmann::ordered_json(nullptr);
    object["accept_L"] = drafted.generated().accept_length();
    object["without"] = plain.json;
    object["with"] = drafted.json;
    return object;
  }

  const CompareFlags& flags_;
  const OpenEngine& engine_;
  Drafting& drafting_;
  ChatSettings chat_;
};

int run_compare(const CompareFlags& flags) {
  check_options(flags.text);
  if (flags.text.generate.logprobs >= 0 && !flags.json) throw InputError("--logprobs: only with --json");
  const EngineOptions options = engine_options(flags.engine);
  const DraftPlan plan = plan_drafting(flags.drafting, options.places);
  if (plan.plain()) throw InputError("--draft none: there is nothing to compare without a drafter");
  const std::string prompt = prompt_text(flags.prompt);
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(with_drafting(options, plan), &screen);
  Drafting drafting(plan, engine, flags.text.generate.seed);
  return Comparison(flags, engine, drafting).run(prompt);
}

}  // namespace

Command add_compare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "answer a prompt without and with speculation: same text, which speed");
  auto flags = std::make_shared<CompareFlags>();
  add_prompt_flags(*command, flags->prompt);
  command->add_flag("--json", flags->json, "print one JSON object instead of the texts");
  add_draft_flags(*command, flags->drafting);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->text);
  return [flags] { return run_compare(*flags); };
}

}  // namespace espalier

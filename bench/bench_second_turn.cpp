// What the second turn of a conversation gains from the first, with the default model and its EAGLE-3 head. Mean accept
// lengths: two turns of MT-bench, the second behind what the first has left in the cache, and once more with everything
// forgotten; the tokens must be the same, and tau nearly. Time to the first token: a question behind a history of 2,000
// tokens that is found again, beside the teacher's plain prefill of the same new tokens behind positions that were
// never anywhere else. From the repository's root: build/bin/bench_second_turn [conversations] [threads]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/quantile.h"
#include "decode/batch.h"
#include "engine/answering.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/model_advice.h"
#include "eval/prompt_set.h"
#include "session/session.h"

namespace espalier {
namespace {

constexpr std::int64_t kAnswerTokens = 128;
constexpr std::int64_t kHistoryTokens = 2000;
constexpr std::size_t kQuestions = 20;  // of two turns

double at(std::vector<double> samples, double share) {
  std::ranges::sort(samples);
  return quantile(samples, share);
}

// The model with everything that a conversation needs. Rows of trees are not chosen by the clock: the same in every
// run.
class Conversations {
 public:
  explicit Conversations(int threads)
      : engine_(open_engine({.threads = threads, .context = 4096, .places = places()})),
        drafting_(plan_drafting({.draft = "eagle3", .nodes = 16}, places()), engine_, 0),
        batch_(*engine_.model, engine_.decoder, drafting_.speculation()),
        settings_(with_chosen_system({}, engine_)) {}

  const OpenEngine& engine() const { return engine_; }
  const Drafting& drafting() const { return drafting_; }
  Batch& batch() { return batch_; }

  Session session() {
    Session fresh(*engine_.text, batch_, chat_context(settings_));
    fresh.reset(settings_.system);
    return fresh;
  }
  std::vector<TokenId> prompt(std::vector<ChatMessage> history, const std::string& question) const {
    history.push_back({"user", question});
    return encode_chat(*engine_.text, history, chat_context(settings_));
  }

 private:
  static Places places() { return {.heads = {"heads"}, .roots = {"."}}; }

  OpenEngine engine_;
  Drafting drafting_;
  Batch batch_;
  ChatSettings settings_;
};

TextOptions answer_options() {
  return {.generate = {.max_tokens = kAnswerTokens}};
}

// --- mean accept lengths --------------------------------------------------------------------------------------------

struct Accepted {
  std::int64_t tokens = 0, rounds = 0;

  void add(const GenerateResult& answer) {
    rounds += answer.rounds();
    for (std::int64_t length : answer.accept_lengths) tokens += length;
  }
  double tau() const {
    return 1 + static_cast<double>(tokens) / static_cast<double>(std::max<std::int64_t>(rounds, 1));
  }
};

// The questions and answers too, in turn.
std::vector<ChatMessage> compare_accept_lengths(Conversations& conversations, std::span<const EvalPrompt> prompts) {
  std::vector<ChatMessage> said;
  Accepted behind_hit, forgotten;
  std::int64_t turns = 0, reused = 0, prompted = 0, differing = 0;
  for (const EvalPrompt& prompt : prompts) {
    conversations.batch().forget();
    Session session = conversations.session();
    session.ask(prompt.turns[0], answer_options());
    Session again = session;
    const GenerateResult hit = session.ask(prompt.turns[1], answer_options()).generated;
    conversations.batch().forget();
    const TextResult whole = again.ask(prompt.turns[1], answer_options());
    check(hit.tokens == whole.generated.tokens, "prompt {}: other tokens behind the hit", prompt.line);
    check(hit.reused_tokens > 0 && whole.generated.reused_tokens == 0, "prompt {}: {} and {} tokens reused",
          prompt.line, hit.reused_tokens, whole.generated.reused_tokens);
    for (const ChatMessage& message : session.history())
      if (message.role != "system") said.push_back(message);
    behind_hit.add(hit);
    forgotten.add(whole.generated);
    differing += hit.accept_lengths != whole.generated.accept_lengths;
    ++turns;
    reused += hit.reused_tokens;
    prompted += std::ssize(whole.prompt);
  }
  fmt::print("second turns: {}, {} of {} prompt tokens reused\n", turns, reused, prompted);
  fmt::print(
      "tau behind the hit {:.4f} ({} rounds), with everything forgotten {:.4f} ({} rounds), ratio {:.4f}; "
      "accept lengths differ in {} turns\n",
      behind_hit.tau(), behind_hit.rounds, forgotten.tau(), forgotten.rounds, behind_hit.tau() / forgotten.tau(),
      differing);
  return said;
}

// --- time to the first token ----------------------------------------------------------------------------------------

// As many tokens of conversation as a prompt of any question begins with.
struct History {
  std::vector<ChatMessage> messages;
  std::vector<TokenId> tokens;
};

// Of these questions and answers, one conversation after the other, from the first again if they are few.
History long_history(const Conversations& conversations, std::span<const ChatMessage> turns) {
  History history;
  for (std::size_t i = 0; std::ssize(history.tokens) < kHistoryTokens; i = (i + 2) % turns.size()) {
    history.messages.insert(history.messages.end(), {turns[i], turns[i + 1]});
    history.tokens = conversations.prompt(history.messages, "A");
    const std::vector<TokenId> other = conversations.prompt(history.messages, "B");
    history.tokens.erase(std::ranges::mismatch(history.tokens, other).in1, history.tokens.end());
  }
  return history;
}

// On a busy machine a time says little, and the processor time of one thread still does.
struct Spent {
  double seconds = 0, processor_seconds = 0;

  static Spent now() {
    return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
            static_cast<double>(std::clock()) / CLOCKS_PER_SEC};
  }
  Spent operator-(const Spent& other) const {
    return {seconds - other.seconds, processor_seconds - other.processor_seconds};
  }
};

// The teacher alone, with positions in place that only this sequence has.
class PlainPrefill {
 public:
  PlainPrefill(const Transformer& model, std::int64_t rows, std::span<const TokenId> before)
      : model_(model),
        rows_(rows),
        cache_(model.device(), model.kv_shape(DType::f16), std::ssize(before) + 512),
        workspace_(model, cache_.memory(), {.rows = rows, .outputs = 1, .positions = std::ssize(before) + 512}),
        id_(model.device().tensor(DType::i32, {1})),
        sequence_(cache_.create()),
        before_(std::ssize(before)) {
    add(before);
  }

  // So many tokens of a text that begins as the first one are in place.
  void place(std::span<const TokenId> text, std::int64_t kept) {
    cache_.truncate(sequence_, std::min(kept, before_));
    if (kept > before_) add(text.subspan(static_cast<std::size_t>(before_), static_cast<std::size_t>(kept - before_)));
  }
  // The token that comes greedily behind those and these.
  TokenId add(std::span<const TokenId> tokens) {
    ConstView logits;
    for (std::size_t done = 0; done < tokens.size();) {
      const auto part = tokens.subspan(done, std::min(tokens.size() - done, static_cast<std::size_t>(rows_)));
      const std::int64_t length = cache_.length(sequence_);
      Branch branch = *cache_.begin(sequence_, std::ssize(part));
      std::vector<Row> rows;
      for (std::size_t i = 0; i < part.size(); ++i)
        rows.push_back(model_.prefill_row(branch.id(), length + static_cast<std::int64_t>(i), part[i]));
      done += part.size();
      rows.back().wants_logits = done == tokens.size();
      logits = model_.forward(rows, workspace_).logits;
      branch.commit_length(std::ssize(part));
    }
    model_.device().argmax(logits, id_.view);
    std::vector<std::int32_t> id(1);
    download<std::int32_t>(model_.device(), id_.view, id);
    return id[0];
  }

 private:
  const Transformer& model_;
  std::int64_t rows_;
  KvCache cache_;
  Workspace workspace_;
  Tensor id_;
  SequenceId sequence_;
  std::int64_t before_;
};

struct FirstToken {
  std::int64_t new_tokens = 0, reused = 0;
  Spent behind_hit, in_place;
};

FirstToken measure_first_token(Batch& batch, PlainPrefill& plain, std::span<const TokenId> prompt) {
  FirstToken measured;
  const Spent start = Spent::now();
  const GenerateEvents events{.on_token = [&](const GeneratedToken&) {
    measured.behind_hit = Spent::now() - start;
    return true;
  }};
  const GenerateResult answer = batch.generate(prompt, {.max_tokens = 1}, events);
  measured.reused = answer.reused_tokens;
  measured.new_tokens = std::ssize(prompt) - answer.reused_tokens;
  plain.place(prompt, measured.reused);
  const Spent plain_start = Spent::now();
  const TokenId expected = plain.add(prompt.subspan(static_cast<std::size_t>(measured.reused)));
  measured.in_place = Spent::now() - plain_start;
  check(answer.tokens == std::vector{expected}, "{} tokens behind {}: another first token behind the hit",
        measured.new_tokens, measured.reused);
  return measured;
}

void print_first_tokens(std::string_view what, std::span<const FirstToken> all) {
  if (all.empty()) return;
  std::vector<double> hit, plain, ratios, processor;
  for (const FirstToken& one : all) {
    hit.push_back(1e3 * one.behind_hit.seconds);
    plain.push_back(1e3 * one.in_place.seconds);
    ratios.push_back(one.behind_hit.seconds / one.in_place.seconds);
    processor.push_back(one.behind_hit.processor_seconds / one.in_place.processor_seconds);
  }
  fmt::print(
      "{}: {} questions, first token after {:.2f} ms, plain prefill {:.2f} ms; ratio {:.3f} (quartiles {:.3f}, "
      "{:.3f}), of processor time {:.3f} ({:.3f}, {:.3f})\n",
      what, all.size(), at(hit, 0.5), at(plain, 0.5), at(ratios, 0.5), at(ratios, 0.25), at(ratios, 0.75),
      at(processor, 0.5), at(processor, 0.25), at(processor, 0.75));
}

// Each question once behind the hit and once in place, as pairs, so that both have the same noise.
void compare_first_tokens(Conversations& conversations, const History& history, std::span<const EvalPrompt> questions) {
  const OpenEngine& engine = conversations.engine();
  PlainPrefill plain(*engine.model, engine.decoder.prefill_rows, history.tokens);
  conversations.batch().forget();
  conversations.batch().generate(history.tokens, {.max_tokens = 0});
  std::vector<FirstToken> all;
  for (const EvalPrompt& question : questions)
    for (const std::string& turn : question.turns)
      all.push_back(measure_first_token(conversations.batch(), plain, conversations.prompt(history.messages, turn)));
  std::ranges::sort(all, {}, &FirstToken::new_tokens);
  fmt::print("behind {} tokens of history, of which {} or more are reused, beside a plain prefill of the new tokens:\n",
             history.tokens.size(), std::ranges::min(all, {}, &FirstToken::reused).reused);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto part = std::span(all).subspan(i * all.size() / 4, (i + 1) * all.size() / 4 - i * all.size() / 4);
    if (part.empty()) continue;
    print_first_tokens(fmt::format("{} to {} new tokens", part.front().new_tokens, part.back().new_tokens), part);
  }
  print_first_tokens("all", all);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;
  const int wanted = argc > 1 ? std::atoi(argv[1]) : 0, threads = argc > 2 ? std::atoi(argv[2]) : 0;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<EvalPrompt> prompts = read_prompt_set("data/eval/mt_bench.jsonl").prompts;
  Conversations conversations(threads);
  fmt::print("{}, {} threads, {}, {}\n", conversations.engine().device->isa(), conversations.engine().threads,
             conversations.drafting().name(), conversations.drafting().budget());
  const auto count = std::min(prompts.size(), static_cast<std::size_t>(wanted > 0 ? wanted : 10));
  const std::vector<ChatMessage> turns = compare_accept_lengths(conversations, std::span(prompts).first(count));
  compare_first_tokens(conversations, long_history(conversations, turns), std::span(prompts).last(kQuestions));
}

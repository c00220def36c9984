// The public API (include/espalier/espalier.h) in terms of the engine.

#include <espalier/espalier.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/answering.h"
#include "engine/build_facts.h"
#include "session/text_stream.h"

namespace espalier {

class ForwardingListener final : public Listener {
 public:
  explicit ForwardingListener(const OpenOptions& options)
      : on_remark_(options.on_remark), on_progress_(options.on_progress) {}

  void remark(std::string_view line) override {
    if (on_remark_) on_remark_(line);
  }
  void progress(std::string_view work, double share) override {
    if (on_progress_) on_progress_(work, share);
  }

 private:
  std::function<void(std::string_view)> on_remark_;
  std::function<void(std::string_view, double)> on_progress_;
};

// Callers take turns. One that calls again from inside its own turn would wait for itself.
class TurnTaking {
 public:
  class Turn {
   public:
    explicit Turn(TurnTaking& turns) : turns_(turns) {
      check(turns.owner_.load() != std::this_thread::get_id(), "espalier: the engine was called from its own callback");
      turns.mutex_.lock();
      turns.owner_ = std::this_thread::get_id();
    }
    ~Turn() {
      turns_.owner_ = std::thread::id();
      turns_.mutex_.unlock();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    TurnTaking& turns_;
  };

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_ = std::thread::id();
};

namespace {

// Memory that runs out is the machine's failure, wherever it happens.
template <typename Function>
auto guarded(const Function& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    throw DeviceError("out of memory");
  }
}

template <typename Value>
Value known_word(const char* option, const std::string& text, const std::optional<Value>& value, const char* expected) {
  if (!value) input_error("{}: expected {}, got '{}'", option, expected, text);
  return *value;
}

EngineOptions engine_options_of(const std::filesystem::path& model, const OpenOptions& options) {
  if (model.empty()) throw InputError("model: expected a GGUF file or a Hugging Face folder, got an empty path");
  if (options.threads < 0 || options.threads > 256) input_error("threads: expected 0 to 256, got {}", options.threads);
  if (options.context < 0) input_error("context: expected 0 or more, got {}", options.context);
  EngineOptions result{.model = model.string(), .threads = options.threads, .context = options.context};
  result.modes.device = AskedMode{options.device, "device"};
  std::optional<DType> kv_type = parse_dtype(options.kv);
  if (kv_type && !is_float(*kv_type)) kv_type.reset();
  result.kv_type = known_word("kv", options.kv, kv_type, "f16, bf16 or f32");
  result.weights = known_word("weights", options.weights, parse_weight_mode(options.weights), "file, f32 or q8_0");
  if (!options.activations.empty())
    result.activations =
        known_word("activations", options.activations, parse_activations(options.activations), "two-terms or bf16");
  result.places.heads = options.head_folders;
  if (!options.cache_folder.empty()) result.places.cache = options.cache_folder;
  return result;
}

DraftOptions draft_options_of(const Drafts& drafts) {
  DraftOptions options{.draft_model = drafts.draft_model.string()};
  if (!drafts.draft.empty()) options.draft = drafts.draft;
  if (!drafts.tree.empty()) options.tree = drafts.tree;
  if (drafts.nodes != 0) options.nodes = drafts.nodes;
  if (drafts.depth != 0) options.depth = drafts.depth;
  for (const std::filesystem::path& head : drafts.heads) options.heads.push_back(head.string());
  return options;
}

TextOptions text_options_of(const AnswerOptions& options) {
  TextOptions result{.generate = {.sampling = {.logit_bias = options.logit_bias,
                                               .repeat_penalty = options.repeat_penalty,
                                               .presence_penalty = options.presence_penalty,
                                               .frequency_penalty = options.frequency_penalty,
                                               .temperature = options.temperature,
                                               .top_k = options.top_k,
                                               .top_p = options.top_p,
                                               .min_p = options.min_p},
                                  .seed = options.seed,
                                  .max_tokens = options.max_tokens,
                                  .logprobs = options.logprobs},
                     .stop = options.stop,
                     .ignore_eos = options.ignore_eos,
                     .loop_guard = options.loop_guard,
                     .drop_oldest = options.drop_oldest};
  check_options(result);
  return result;
}

End end_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop_token:
    case FinishReason::stopped: return End::stop;
    case FinishReason::token_limit: return End::length;
    case FinishReason::context_limit: return End::context;
    case FinishReason::cancelled: return End::cancelled;
  }
  return End::stop;
}

TokenProbability probability_of(const TokenLogprob& entry, const Tokenizer& tokenizer) {
  return {entry.token, tokenizer.decode(std::span(&entry.token, 1)), entry.logprob};
}

std::vector<TokenProbabilities> probabilities_of(const std::vector<Logprobs>& all, const Tokenizer& tokenizer) {
  std::vector<TokenProbabilities> result;
  for (const Logprobs& one : all) {
    TokenProbabilities entry{.chosen = probability_of(one.chosen, tokenizer)};
    for (const TokenLogprob& other : one.top) entry.top.push_back(probability_of(other, tokenizer));
    result.push_back(std::move(entry));
  }
  return result;
}

ReplyStatistics statistics_of(const TextResult& result, const std::string& drafters) {
  const GenerateResult& generated = result.generated;
  const std::vector<std::int64_t>& accepted = generated.accept_lengths;
  return {.prompt_tokens = std::ssize(result.prompt),
          .reused_tokens = generated.reused_tokens,
          .prefill_seconds = generated.prefill_seconds,
          .decode_seconds = generated.decode_seconds,
          .rounds = generated.rounds(),
          .drafted_tokens = generated.verified_rows - generated.rounds(),
          .accepted_tokens = std::accumulate(accepted.begin(), accepted.end(), std::int64_t{0}),
          .drafters = drafters};
}

Reply reply_of(const TextResult& result, const Tokenizer& tokenizer, const std::string& drafters) {
  return {.text = result.text,
          .tokens = result.generated.tokens,
          .end = end_of(result.generated.finish_reason),
          .loops = result.loops,
          .dropped_turns = result.dropped_turns,
          .logprobs = probabilities_of(result.logprobs, tokenizer),
          .statistics = statistics_of(result, drafters)};
}

// Never empty.
std::string message_of(const std::exception_ptr& failure) {
  try {
    guarded([&] { std::rethrow_exception(failure); });
  } catch (const std::exception& error) {
    if (*error.what() != '\0') return error.what();
  } catch (...) {
  }
  return "an exception that says nothing";
}

int checked_parallel(int parallel) {
  if (parallel < 1 || parallel > 256) input_error("parallel: expected 1 to 256, got {}", parallel);
  return parallel;
}

std::vector<ChatMessage> chat_of(const Prompt& prompt) {
  if (!prompt.messages.empty() && !prompt.text.empty())
    throw InputError("prompt: expected messages or a text, got both");
  std::vector<ChatMessage> messages;
  for (const Message& message : prompt.messages) messages.push_back({message.role, message.content});
  return messages;
}

}  // namespace

struct Engine::State {
  State(const std::filesystem::path& model, const OpenOptions& options)
      : listener(options), engine(open_engine(engine_options_of(model, options), &listener)) {}

  // Heads are loaded once for all conversations that draft alike; an oracle learns answers and is nobody else's.
  std::shared_ptr<Drafting> drafting_for(const Drafts& drafts) {
    for (const auto& [choice, drafting] : draftings)
      if (choice == drafts) return drafting;
    auto opened = std::make_shared<Drafting>(plan_drafting(draft_options_of(drafts), engine.places), engine, 0);
    if (!opened->wants_answer()) draftings.emplace_back(drafts, opened);
    return opened;
  }

  ForwardingListener listener;
  OpenEngine engine;
  TurnTaking turns;
  std::vector<std::pair<Drafts, std::shared_ptr<Drafting>>> draftings = {};
};

// Members are declared in the order they depend on each other.
struct Conversation::State {
  State(std::shared_ptr<Engine::State> shared, const ConversationOptions& options)
      : owner(std::move(shared)),
        drafting(owner->drafting_for(options.drafts)),
        answering(owner->engine, drafting.get(),
                  {.system = options.system, .variables = options.template_variables, .date = options.date}) {}

  Reply answer(std::string_view prompt, bool raw, const AnswerOptions& options) {
    const TurnTaking::Turn turn(owner->turns);
    const TextResult result = answering.answer(std::string(prompt), raw, text_options_of(options),
                                               {.on_text = options.on_text, .cancelled = options.cancelled});
    return reply_of(result, *owner->engine.text->tokenizer, drafting->name());
  }

  std::shared_ptr<Engine::State> owner;
  std::shared_ptr<Drafting> drafting;
  Answering answering;
};

Conversation::Conversation(std::unique_ptr<State> state) : state_(std::move(state)) {}
Conversation::Conversation(Conversation&&) noexcept = default;
Conversation& Conversation::operator=(Conversation&&) noexcept = default;
Conversation::~Conversation() = default;

Conversation::State& Conversation::state() const {
  check(state_ != nullptr, "espalier: the conversation was moved away");
  return *state_;
}

Reply Conversation::ask(std::string_view user, const AnswerOptions& options) {
  return guarded([&] { return state().answer(user, false, options); });
}

Reply Conversation::complete(std::string_view prompt, const AnswerOptions& options) {
  return guarded([&] { return state().answer(prompt, true, options); });
}

std::vector<Message> Conversation::history() const {
  const TurnTaking::Turn turn(state().owner->turns);
  std::vector<Message> messages;
  for (const ChatMessage& message : state_->answering.history()) messages.push_back({message.role, message.content});
  return messages;
}

void Conversation::reset() {
  const TurnTaking::Turn turn(state().owner->turns);
  state_->answering.reset();
}

// Members are declared in the order they depend on each other.
struct Requests::State {
  State(std::shared_ptr<Engine::State> shared, const RequestsOptions& options)
      : owner(std::move(shared)),
        drafting(drafting_for(*owner, options.drafts)),
        chat(chat_context({.variables = options.template_variables, .date = options.date})),
        batch(*owner->engine.model, decoder_options(owner->engine, options), drafting->speculation(options.parallel)) {}

  // Answers come from many prompts, and an oracle would have to hear each of them first.
  static std::shared_ptr<Drafting> drafting_for(Engine::State& engine, const Drafts& drafts) {
    std::shared_ptr<Drafting> drafting = engine.drafting_for(drafts);
    if (drafting->wants_answer()) input_error("draft: {} needs the answers beforehand", drafting->name());
    return drafting;
  }
  static DecoderOptions decoder_options(const OpenEngine& engine, const RequestsOptions& options) {
    DecoderOptions result = engine.decoder;
    result.parallel = checked_parallel(options.parallel);
    return result;
  }

  // What was submitted. Its batch keeps it until it ends.
  struct Request {
    TextStream stream;
    std::int64_t dropped_turns;
    std::function<void(const Ending&)> on_end;
    RequestId id = 0;
  };

  // Touches nothing that turns are taken for: callbacks may come here in the middle of a step.
  RequestId submit(const Prompt& prompt, const AnswerOptions& options, std::function<void(const Ending&)> on_end) {
    const TextOptions asked = text_options_of(options);
    const ModelText& text = *owner->engine.text;
    std::vector<ChatMessage> messages = chat_of(prompt);
    FittedChat fitted = messages.empty() ? FittedChat{.prompt = encode_plain(text, prompt.text)}
                                         : fit_chat(text, std::move(messages), chat, batch.context(), asked);
    const TextEvents events{.on_text = options.on_text, .cancelled = options.cancelled};
    // No make_shared: a stream stays where it was made.
    const std::shared_ptr<Request> request(
        new Request{{text, std::move(fitted.prompt), asked, events}, fitted.dropped_turns, std::move(on_end)});
    GenerateRequest generate = request->stream.request();
    generate.events.on_end = [this, request](const AnswerEnd& end) { tell(*request, end); };
    return request->id = batch.submit(generate);
  }

  // Nothing may leave this: the batch is in the middle of a step.
  void tell(Request& request, const AnswerEnd& end) noexcept {
    try {
      Ending ending{.id = request.id};
      try {
        if (end.failure) std::rethrow_exception(end.failure);
        request.stream.finish();
      } catch (...) {
        ending.error = message_of(std::current_exception());
      }
      TextResult result = request.stream.take(end.result);
      result.dropped_turns = request.dropped_turns;
      ending.reply = reply_of(result, *owner->engine.text->tokenizer, drafting->name());
      if (request.on_end) request.on_end(ending);
    } catch (...) {
      if (!thrown) thrown = std::current_exception();
    }
  }

  bool step() {
    const TurnTaking::Turn turn(owner->turns);
    const bool more = batch.step();
    if (thrown) std::rethrow_exception(std::exchange(thrown, {}));
    return more;
  }

  std::shared_ptr<Engine::State> owner;
  std::shared_ptr<Drafting> drafting;
  ChatContext chat;
  std::exception_ptr thrown = {};  // by the first on_end that did, in this step
  Batch batch;
};

Requests::Requests(std::unique_ptr<State> state) : state_(std::move(state)) {}
Requests::Requests(Requests&&) noexcept = default;
Requests& Requests::operator=(Requests&&) noexcept = default;
Requests::~Requests() = default;

Requests::State& Requests::state() const {
  check(state_ != nullptr, "espalier: the requests were moved away");
  return *state_;
}

RequestId Requests::submit(const Prompt& prompt, const AnswerOptions& options,
                           std::function<void(const Ending&)> on_end) {
  return guarded([&] { return state().submit(prompt, options, std::move(on_end)); });
}

void Requests::cancel(RequestId id) {
  state().batch.cancel(id);
}

bool Requests::step() {
  return guarded([&] { return state().step(); });
}

void Requests::run() {
  while (step()) {
  }
}

Engine::Engine(std::shared_ptr<State> state) : state_(std::move(state)) {}

Engine::State& Engine::state() const {
  check(state_ != nullptr, "espalier: the engine was moved away");
  return *state_;
}

Engine Engine::open(const std::filesystem::path& model, const OpenOptions& options) {
  return guarded([&] { return Engine(std::make_shared<State>(model, options)); });
}

Conversation Engine::converse(const ConversationOptions& options) const {
  const TurnTaking::Turn turn(state().turns);
  return guarded([&] { return Conversation(std::make_unique<Conversation::State>(state_, options)); });
}

Requests Engine::requests(const RequestsOptions& options) const {
  const TurnTaking::Turn turn(state().turns);
  return guarded([&] { return Requests(std::make_unique<Requests::State>(state_, options)); });
}

std::int64_t Engine::context() const {
  return state().engine.decoder.context;
}

std::int64_t Engine::vocabulary() const {
  return state().engine.model->config().vocabulary;
}

bool Engine::has_chat_template() const {
  return state().engine.text->chat_template.has_value();
}

std::vector<std::int32_t> Engine::tokenize(std::string_view text) const {
  return state().engine.text->tokenizer->encode(text);
}

std::string Engine::detokenize(const std::vector<std::int32_t>& tokens) const {
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocabulary()) input_error("token {}: expected 0 to {}", token, vocabulary() - 1);
  return state().engine.text->tokenizer->decode(tokens);
}

std::string_view name(End end) {
  switch (end) {
    case End::stop: return "stop";
    case End::length: return "length";
    case End::context: return "context";
    case End::cancelled: return "cancelled";
  }
  return "";
}

std::string_view version() {
  return build_version();
}

}  // namespace espalier

// Espalier as a library: open a model, ask, read the answer as it comes. Speculation changes the speed, never the text.
//
//   const espalier::Engine engine = espalier::Engine::open("model.gguf");
//   espalier::Conversation conversation = engine.converse();
//   const espalier::Reply reply = conversation.ask("Why is the sky blue?", {.on_text = [](std::string_view text) {
//     std::cout << text << std::flush;
//   }});
//
// Errors are those of error.h. An engine and its conversations may be used by any thread: they take turns, so a call
// waits until the answer before it is complete. Only destroying and moving an object is for the one who has it alone,
// and requests that are answered together (Requests) are for one thread at a time. All keep their engine alive.
#pragma once

#include <espalier/error.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

// How a model is opened.
struct OpenOptions {
  int threads = 0;               // 0: one per core
  std::int64_t context = 0;      // positions of a conversation; 0: what the model was made for, at most 8192
  // Or "reference": plain loops, the same bits, slowly; "cuda", "cuda:1": a GPU; "auto": a GPU that has room, else cpu;
  // "ascend", "ascend:1": an NPU, whose texts may depend on what is computed beside them.
  std::string device = "cpu";
  std::string kv = "f16";        // element type of the KV memory: "f16", "bf16" or "f32"
  std::string weights = "file";  // as in the file, widened to "f32", or quantised to "q8_0"
  // What a GPU takes the inputs of float weights as: "two-terms" of 16 bits, or one, "bf16"; empty: the device's own.
  std::string activations = {};
  // Draft heads that were trained for the model are found in these folders.
  std::vector<std::filesystem::path> head_folders = {};
  // Where measured step times and hashes of files are kept for later runs; empty: nowhere, they are found out again.
  std::filesystem::path cache_folder = {};
  // Called while opening and drafting: one line that a user should see; how far some work is, from 0 to 1. They must
  // neither throw nor use the engine.
  std::function<void(std::string_view line)> on_remark = {};
  std::function<void(std::string_view work, double share)> on_progress = {};
};

// Who guesses ahead, as the flags of `espalier generate` with these names do (docs/drafters.md). An empty text, 0,
// means what the program would choose.
struct Drafts {
  std::string draft = "auto";  // "none", "ngram", "medusa", "eagle", "model", several with + between
  std::string tree = {};       // "chain", "static:FILE" or "dynamic"
  int nodes = 0;               // rows of a tree
  int depth = 0;               // levels of a tree
  std::vector<std::filesystem::path> heads = {};
  std::filesystem::path draft_model = {};  // for "model"

  bool operator==(const Drafts&) const = default;
};

struct ConversationOptions {
  std::string system = {};              // empty: what the model's chat template says by itself
  std::string template_variables = {};  // a JSON object, for example {"enable_thinking": false}
  std::string date = {};                // for templates that tell the date, "2026-11-16"; empty: today
  Drafts drafts = {};
};

// One answer: how it is drawn, when it ends, and who listens.
struct AnswerOptions {
  float temperature = 0;   // 0: the most probable token, always
  std::int64_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  float repeat_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::map<std::int32_t, float> logit_bias = {};
  std::uint64_t seed = 0;  // the same seed gives the same text
  std::int64_t max_tokens = 256;
  std::vector<std::string> stop = {};  // the answer ends before the first of these
  bool ignore_eos = false;             // the model's own end tokens do not end it
  bool loop_guard = false;             // three equal stretches of 32 tokens or more in a row end it (Reply::loops)
  bool drop_oldest = false;  // a chat that has outgrown the context loses its oldest turns instead of throwing
  int logprobs = -1;         // alternatives reported with each token, up to 1000; -1: no log-probabilities

  // Called while the answer is made: whole characters as they become known, and whether to stop. What they throw ends
  // the answer. They must not use the same engine; those of a request may submit and cancel.
  std::function<void(std::string_view text)> on_text = {};
  std::function<bool()> cancelled = {};
};

enum class End { stop, length, context, cancelled };
std::string_view name(End end);  // "stop", "length", "context", "cancelled"

struct TokenProbability {
  std::int32_t token = 0;
  std::string text = {};  // a token of its own may be half a character
  double logprob = 0;
};
struct TokenProbabilities {
  TokenProbability chosen = {};
  std::vector<TokenProbability> top = {};  // the most probable first
};

struct ReplyStatistics {
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;    // of the prompt, already computed by an earlier turn
  double prefill_seconds = 0;        // until the first token
  double decode_seconds = 0;         // the rest
  std::int64_t rounds = 0;           // steps of the model after the prompt
  std::int64_t drafted_tokens = 0;   // that were guessed and verified
  std::int64_t accepted_tokens = 0;  // of those, the ones that became text
  std::string drafters = {};         // "eagle3+ngram"; "none"
};

struct Reply {
  std::string text = {};
  std::vector<std::int32_t> tokens = {};  // an end token included
  End end = End::length;
  bool loops = false;                             // the loop guard ended it
  std::int64_t dropped_turns = 0;                 // the oldest of the conversation, to make room for it
  std::vector<TokenProbabilities> logprobs = {};  // one per token, where asked for
  ReplyStatistics statistics = {};
};

struct Message {
  std::string role = {};  // "system", "user", "assistant"
  std::string content = {};
};

// Turns that follow each other. What an earlier turn has computed is not computed again.
class Conversation {
 public:
  Conversation(Conversation&&) noexcept;
  Conversation& operator=(Conversation&&) noexcept;
  ~Conversation();

  // The next turn of the user, answered. A cancelled answer is kept as far as it came; a turn that throws leaves the
  // conversation as it was.
  Reply ask(std::string_view user, const AnswerOptions& options = {});
  // A text as it is, continued: without chat template and history.
  Reply complete(std::string_view prompt, const AnswerOptions& options = {});

  std::vector<Message> history() const;
  void reset();  // starts anew, with the same system message

 private:
  friend class Engine;
  struct State;
  explicit Conversation(std::unique_ptr<State> state);
  State& state() const;
  std::unique_ptr<State> state_;
};

struct RequestsOptions {
  int parallel = 4;                     // answers at once, 1 to 256, each with KV memory for the context; others wait
  std::string template_variables = {};  // as in ConversationOptions
  std::string date = {};
  Drafts drafts = {};
};

// What is to be answered: a chat, whose last message is the user's, or a text as it is, continued. One of them is
// empty.
struct Prompt {
  std::vector<Message> messages = {};
  std::string text = {};
};

using RequestId = std::int64_t;

// An answer that has ended.
struct Ending {
  RequestId id = 0;
  Reply reply = {};        // where it failed: as far as it came
  std::string error = {};  // why it failed, in one line; empty: it did not
};

// Questions that are answered together, which takes less time than one after the other and gives the same texts. They
// join and leave at any step; one that fails ends alone. One thread at a time, which takes turns with the engine's
// conversations step by step. Destroying it drops what has not ended, and nobody hears of that.
class Requests {
 public:
  Requests(Requests&&) noexcept;
  Requests& operator=(Requests&&) noexcept;
  ~Requests();

  // Returns at once: answers are made by step(). Wrong options, and a prompt that can never be answered, throw here and
  // join nothing. on_end is called once, after all other callbacks; it may submit and cancel, and what it throws leaves
  // the step() that called it, when that is done.
  RequestId submit(const Prompt& prompt, const AnswerOptions& options = {},
                   std::function<void(const Ending&)> on_end = {});
  // The answer ends with the next step, as far as it came (End::cancelled). One that has ended already is no error.
  void cancel(RequestId id);
  // Some more tokens for everybody. False: all have ended.
  bool step();
  // Steps until all have ended, those included that callbacks submit.
  void run();

 private:
  friend class Engine;
  struct State;
  explicit Requests(std::unique_ptr<State> state);
  State& state() const;
  std::unique_ptr<State> state_;
};

// A model, opened.
class Engine {
 public:
  // A GGUF file or a Hugging Face folder.
  static Engine open(const std::filesystem::path& model, const OpenOptions& options = {});

  // Any number of conversations; each has KV memory of its own.
  Conversation converse(const ConversationOptions& options = {}) const;
  // Likewise.
  Requests requests(const RequestsOptions& options = {}) const;

  std::int64_t context() const;     // positions
  std::int64_t vocabulary() const;  // tokens
  bool has_chat_template() const;
  std::vector<std::int32_t> tokenize(std::string_view text) const;  // control tokens are not recognised
  std::string detokenize(const std::vector<std::int32_t>& tokens) const;

 private:
  friend class Conversation;
  friend class Requests;
  struct State;
  explicit Engine(std::shared_ptr<State> state);
  State& state() const;
  std::shared_ptr<State> state_;  // shared with what was made on it, which outlives it if it likes
};

// "0.1.0".
std::string_view version();

}  // namespace espalier

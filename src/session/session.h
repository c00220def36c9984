// Text in, text out: chat template, tokens, streaming, stop strings, history. One conversation; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/batch.h"
#include "session/chat_prompt.h"
#include "session/context_room.h"

namespace espalier {

struct TextOptions {
  GenerateOptions generate = {};  // its stop_tokens are added to the model's own
  // Stop strings: the answer ends before the first that is complete. None is looked for in the text of the first
  // generate.min_tokens tokens, except one that only later text completes.
  std::vector<std::string> stop = {};
  bool include_stop = false;  // the answer ends with the stop string instead
  bool ignore_eos = false;    // the model's own stop tokens do not stop
  bool loop_guard = false;    // an answer that goes round in circles ends (loop_guard.h)
  bool drop_oldest = false;   // a chat that has outgrown the context loses its oldest turns (context_room.h)
};

// Throws InputError naming the flag: numbers out of range, empty stop strings.
void check_options(const TextOptions& options);

// A token of the answer, and what it adds to the text.
struct TextToken {
  TokenId id = 0;
  std::string bytes = {};   // possibly part of a character; none of a control token, which is not shown
  std::int64_t offset = 0;  // where they begin in the answer, in bytes of its text
  bool first = false;       // of a text: SentencePiece drops a space there
  bool stops = false;       // a stop token
  std::optional<Logprobs> logprobs = {};
};

// Text of the answer with the tokens that are complete with it. All parts of an answer joined are its text, and its
// tokens but for those that have no byte of it because they stand in or behind a stop string. A token whose last
// character is not complete, or may begin a stop string, comes with a later part.
struct TextPart {
  std::string text = {};
  std::vector<TextToken> tokens = {};

  bool empty() const { return text.empty() && tokens.empty(); }
};

struct TextEvents {
  std::function<void(std::string_view)> on_text = {};  // whole characters, as they become known
  // The same, once for each step that has brought something, and at the end once more where there is something left.
  // Never empty.
  std::function<void(const TextPart&)> on_part = {};
  std::function<bool()> cancelled = {};
  std::function<void(std::int64_t done, std::int64_t total)> on_prefill = {};
  std::function<void(std::int64_t turns)> on_dropped = {};  // the oldest turns are gone, before the answer begins
  RoundObserver on_round = {};
  FailureObserver on_failure = {};
};

struct TextResult {
  std::string text;
  std::vector<TokenId> prompt;
  std::vector<Logprobs> logprobs;               // one per token, when asked for
  bool loops = false;                           // the loop guard ended it
  std::optional<std::string> stop_string = {};  // that ended it
  std::optional<TokenId> stop_token = {};       // likewise, the model's own or one of the request's
  std::int64_t dropped_turns = 0;               // of the conversation, to make room for it
  GenerateResult generated;
};

// Answers one request of a conversation in the batch, and returns when it is answered: for those who share batches.
using GenerateCall = std::function<GenerateResult(Batch& decoder, const GenerateRequest& request)>;

class Session {
 public:
  // Both must outlive the session. Without a call, the batch is the conversation's own: it is stepped here.
  Session(const ModelText& text, Batch& decoder, ChatContext context = {}, GenerateCall call = {});

  // Text as it is, with BOS where the model wants it; no history.
  TextResult complete(std::string_view prompt, const TextOptions& options, const TextEvents& events = {});
  // The next user turn of the conversation; the answer joins the history. Throws InputError when the model has no chat
  // template, ContextFull when the context does not hold the conversation. A cancelled answer is kept as far as it
  // came.
  TextResult ask(std::string_view user, const TextOptions& options, const TextEvents& events = {});

  // The same with ids that were made before, as encode_plain() and encode_chat() make them of the same texts.
  TextResult complete(std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events = {});
  TextResult ask(std::string_view user, std::vector<TokenId> prompt, const TextOptions& options,
                 const TextEvents& events = {});

  // Starts the conversation anew. An empty system text leaves the template's own default.
  void reset(std::string_view system = {});
  // Another system message for the same conversation; an empty one as in reset().
  void change_system(std::string_view system);
  // The last question leaves the conversation with its answer. Nothing: there is none.
  std::optional<std::string> take_back();
  // Another conversation in place of this one: a system message or none, then questions and answers in turn.
  void restore(std::vector<ChatMessage> messages) { messages_ = std::move(messages); }
  const std::vector<ChatMessage>& history() const { return messages_; }
  // The same conversation, as it stands, on another decoder.
  Session on(Batch& decoder) const;

 private:
  FittedChat fitted(std::string_view user, const TextOptions& options) const;
  TextResult generate(std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events);

  const ModelText* text_;
  Batch* decoder_;
  ChatContext context_;
  GenerateCall call_;
  std::vector<ChatMessage> messages_;
};

}  // namespace espalier

// Text in, text out: chat template, tokens, streaming, stop strings, history. One conversation; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/decoder.h"
#include "text/model_text.h"

namespace espalier {

struct TextOptions {
  GenerateOptions generate = {};       // its stop_tokens are added to the model's own
  std::vector<std::string> stop = {};  // stop strings: the answer ends before the first of them
  bool ignore_eos = false;             // the model's own stop tokens do not stop
};

// Throws InputError naming the flag: numbers out of range, empty stop strings.
void check_options(const TextOptions& options);

struct TextEvents {
  std::function<void(std::string_view)> on_text = {};  // whole characters, as they become known
  std::function<bool()> cancelled = {};
  std::function<void(std::int64_t done, std::int64_t total)> on_prefill = {};
  RoundObserver on_round = {};
  FailureObserver on_failure = {};
};

struct TextResult {
  std::string text;
  std::vector<TokenId> prompt;
  std::vector<Logprobs> logprobs;  // one per token, when asked for
  GenerateResult generated;
};

// What a chat template may ask for besides the messages.
struct ChatContext {
  std::string date_iso = {};        // today, "2026-11-15"; empty: templates that want it use their own default
  std::string variables_json = {};  // further variables, for example {"enable_thinking": false}
};

class Session {
 public:
  // Both must outlive the session.
  Session(const ModelText& text, Decoder& decoder, ChatContext context = {});

  // Text as it is, with BOS where the model wants it; no history.
  TextResult complete(std::string_view prompt, const TextOptions& options, const TextEvents& events = {});
  // The next user turn of the conversation; the answer joins the history. Throws InputError when the model has no chat
  // template. A cancelled answer is kept as far as it came.
  TextResult ask(std::string_view user, const TextOptions& options, const TextEvents& events = {});

  // The same with ids that were made before, as encode_plain() and encode_chat() make them of the same texts.
  TextResult complete(std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events = {});
  TextResult ask(std::string_view user, std::vector<TokenId> prompt, const TextOptions& options,
                 const TextEvents& events = {});

  // Starts the conversation anew. An empty system text leaves the template's own default.
  void reset(std::string_view system = {});
  const std::vector<ChatMessage>& history() const { return messages_; }
  // The same conversation, as it stands, on another decoder.
  Session on(Decoder& decoder) const;

 private:
  TextResult generate(std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events);

  const ModelText* text_;
  Decoder* decoder_;
  ChatContext context_;
  std::vector<ChatMessage> messages_;
};

// The ids of a plain prompt and of a chat.
std::vector<TokenId> encode_plain(const ModelText& text, std::string_view prompt);
std::vector<TokenId> encode_chat(const ModelText& text, const std::vector<ChatMessage>& messages,
                                 const ChatContext& context = {});

}  // namespace espalier

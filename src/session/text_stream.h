// One answer between text and tokens: what a batch is asked for it, and its tokens as text, in whole characters, with
// nothing from a stop string on, or behind it. The answer continues its prompt: both texts joined are the text of all
// tokens. One thread at a time.
#pragma once

#include <string>
#include <vector>

#include "decode/request.h"
#include "session/chat_prompt.h"
#include "session/context_room.h"
#include "session/loop_guard.h"
#include "session/session.h"
#include "session/stop_scanner.h"
#include "session/told_tokens.h"
#include "text/detokenizer.h"

namespace espalier {

// What a chat sends to the model, as the options say; the last message is the user's. Throws ContextFull when `context`
// positions do not hold it, InputError when the model has no chat template.
FittedChat fit_chat(const ModelText& text, std::vector<ChatMessage> messages, const ChatContext& chat,
                    std::int64_t context, const TextOptions& options);

class TextStream {
 public:
  // The text must outlive this.
  TextStream(const ModelText& text, std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events);
  TextStream(const TextStream&) = delete;  // its request points to it
  TextStream& operator=(const TextStream&) = delete;

  // This must outlive the answer. What a stream does not know of (its drafts, its key, ...) may be added, and listeners
  // it does not need.
  GenerateRequest request();
  // The answer is complete, or has come as far as it could, and what was kept back is said. Once more does no harm.
  void finish();
  // Everything that was heard, once.
  TextResult take(const GenerateResult& generated);

 private:
  bool push(const GeneratedToken& token);
  void say(const GeneratedToken& token);
  void say_rest();
  std::string scanned(const std::string& text);
  void emit(const std::string& part);
  void tell_part();

  const ModelText* text_;
  TextOptions options_;
  TextEvents events_;
  Detokenizer detokenizer_;
  StopScanner scanner_;
  LoopGuard guard_;
  std::int64_t tokens_ = 0;     // so far
  std::int64_t text_size_ = 0;  // of all that came out of them, said or not
  ToldTokens told_;
  TextPart part_;  // that has not been told
  TextResult result_;
};

}  // namespace espalier

// Prompts answered with the drafters of a run: decoder, conversation, and the rehearsal that an oracle needs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/drafting.h"
#include "engine/engine.h"
#include "session/session.h"

namespace espalier {

// What a conversation begins with.
struct ChatSettings {
  std::string system = {};         // empty: the template's own
  bool template_system = false;    // the template's own, also where another one is known to be better (model_advice.h)
  std::string chat_template = {};  // in place of the model's own, Jinja; empty: that one
  std::string variables = {};      // of the chat template, a JSON object
  std::string date = {};           // that templates may tell, "2026-11-15"; empty: today
};
// What the template may ask for, today's date included.
ChatContext chat_context(const ChatSettings& settings);

// One conversation. One thread at a time.
class Answering {
 public:
  // Both must outlive this. Without drafting: plain decoding.
  Answering(const OpenEngine& engine, Drafting* drafting, const ChatSettings& chat);

  // The next turn; `raw`: the prompt as it is, without template and history. An oracle hears the answer first.
  TextResult answer(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events);
  // The same without a rehearsal: for those who have learned the answer already.
  TextResult speak(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events);
  void reset() { session_.reset(system_); }
  // As the functions of Session do. Another system message is that of the conversations after a reset, too.
  void change_system(std::string system);
  std::optional<std::string> take_back() { return session_.take_back(); }
  void restore(std::vector<ChatMessage> messages);

  const std::string& system() const { return system_; }  // empty: the template's own
  const std::vector<ChatMessage>& history() const { return session_.history(); }
  const Batch& decoder() const { return decoder_; }

 private:
  void rehearse(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events);

  const OpenEngine* engine_;
  Drafting* drafting_;
  std::string system_;
  Batch decoder_;
  Session session_;
};

}  // namespace espalier

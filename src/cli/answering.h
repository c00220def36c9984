// Prompts answered with the drafters of a run: decoder, conversation, and the rehearsal that an oracle needs.
#pragma once

#include <string>

#include "cli/drafting.h"
#include "cli/options.h"
#include "session/session.h"

namespace espalier {

struct PromptFlags {
  std::optional<std::string> prompt = {};
  std::string file = {};
  ChatFlags chat = {};
  bool raw = false;  // without the chat template
};
void add_prompt_flags(CLI::App& app, PromptFlags& flags);
// The text that is meant; throws InputError where the flags contradict each other or it is empty.
std::string prompt_text(const PromptFlags& flags);

class Answering {
 public:
  // Both must outlive this. Without drafting: plain decoding.
  Answering(const Engine& engine, Drafting* drafting, const ChatFlags& chat);

  // The next turn; `raw`: the prompt as it is, without template and history. An oracle hears the answer first.
  TextResult answer(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events);
  // The same without a rehearsal: for those who have learned the answer already.
  TextResult speak(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events);
  void reset() { session_.reset(system_); }

  const Decoder& decoder() const { return decoder_; }

 private:
  void rehearse(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events);

  const Engine* engine_;
  Drafting* drafting_;
  std::string system_;
  Decoder decoder_;
  Session session_;
};

}  // namespace espalier

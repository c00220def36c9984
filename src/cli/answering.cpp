#include "cli/answering.h"

#include "base/error.h"

namespace espalier {
namespace {

TextResult turn(Session& session, const std::string& prompt, bool raw, const TextOptions& options,
                const TextEvents& events) {
  return raw ? session.complete(prompt, options, events) : session.ask(prompt, options, events);
}

}  // namespace

void add_prompt_flags(CLI::App& app, PromptFlags& flags) {
  app.add_option("PROMPT", flags.prompt, "the prompt; - reads standard input");
  app.add_option("--file", flags.file, "read the prompt from a file")->type_name("FILE");
  app.add_flag("--raw", flags.raw, "the prompt as it is, without the model's chat template");
  add_chat_flags(app, flags.chat);
}

std::string prompt_text(const PromptFlags& flags) {
  if (flags.raw && !(flags.chat.system.empty() && flags.chat.variables.empty()))
    throw InputError("--system, --template-variables: not with --raw, which uses no chat template");
  std::string text = read_prompt(flags.prompt, flags.file);
  if (text.empty()) throw InputError("the prompt is empty");
  return text;
}

Answering::Answering(const Engine& engine, Drafting* drafting, const ChatFlags& chat)
    : engine_(&engine),
      drafting_(drafting),
      system_(chat.system),
      decoder_(*engine.model, engine.decoder, drafting == nullptr ? Speculation() : drafting->speculation()),
      session_(*engine.text, decoder_, chat_context(chat)) {
  reset();
}

TextResult Answering::answer(const std::string& prompt, bool raw, const TextOptions& options,
                             const TextEvents& events) {
  if (drafting_ != nullptr && drafting_->wants_answer()) rehearse(prompt, raw, options, events);
  return speak(prompt, raw, options, events);
}

TextResult Answering::speak(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events) {
  return turn(session_, prompt, raw, options, events);
}

// Once without speculation, on a decoder of its own, heard by nobody.
void Answering::rehearse(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events) {
  Decoder plain(*engine_->model, engine_->decoder);
  Session session = session_.on(plain);
  const TextResult known = turn(session, prompt, raw, options, {.cancelled = events.cancelled});
  drafting_->learn(known.prompt, known.generated.tokens);
}

}  // namespace espalier

#include "engine/answering.h"

#include <ctime>

#include "base/error.h"

namespace espalier {
namespace {

TextResult turn(Session& session, const std::string& prompt, bool raw, const TextOptions& options,
                const TextEvents& events) {
  return raw ? session.complete(prompt, options, events) : session.ask(prompt, options, events);
}

}  // namespace

ChatContext chat_context(const ChatSettings& settings) {
  ChatContext context{.date_iso = settings.date, .variables_json = settings.variables};
  if (!settings.chat_template.empty()) context.instead = std::make_shared<ChatTemplate>(settings.chat_template);
  if (!settings.date.empty()) return context;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char date[sizeof "2026-11-15T23:59:59"];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &local);
  context.date_iso = date;
  return context;
}

Answering::Answering(const OpenEngine& engine, Drafting* drafting, const ChatSettings& chat)
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

void Answering::change_system(std::string system) {
  system_ = std::move(system);
  session_.change_system(system_);
}

void Answering::restore(std::vector<ChatMessage> messages) {
  system_ = !messages.empty() && messages[0].role == "system" ? messages[0].content : std::string();
  session_.restore(std::move(messages));
}

// Once without speculation, on a decoder of its own, heard by nobody.
void Answering::rehearse(const std::string& prompt, bool raw, const TextOptions& options, const TextEvents& events) {
  Batch plain(*engine_->model, engine_->decoder);
  Session session = session_.on(plain);
  const TextResult known = turn(session, prompt, raw, options, {.cancelled = events.cancelled});
  drafting_->learn(known.prompt, known.generated.tokens);
}

}  // namespace espalier

#include "session/chat_prompt.h"

#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

// Stands behind the last message while it is rendered, so that its end can be found: characters for private use, which
// no template knows, and a space, which is lost where a template strips its messages.
constexpr std::string_view kMessageEnd = "\U000F1E57\U000F1E58";

// Some prompts write BOS themselves, others leave it to the tokenizer: exactly one in either case.
std::vector<TokenId> with_bos(std::vector<TokenId> ids, const Tokenizer& tokenizer) {
  const auto bos = tokenizer.bos();
  if (tokenizer.add_bos() && bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

std::vector<ChatMessage> with_marked_end(std::vector<ChatMessage> messages) {
  if (messages.empty()) throw InputError("a message to be continued: expected one, got none");
  messages.back().content += std::string(kMessageEnd) + ' ';
  return messages;
}

// The pieces up to where the last message ends.
std::vector<TextPiece> without_end(std::vector<TextPiece> pieces) {
  for (; !pieces.empty(); pieces.pop_back()) {
    std::string& text = pieces.back().text;
    const std::size_t end = pieces.back().allow_special ? std::string::npos : text.rfind(kMessageEnd);
    if (end == std::string::npos) continue;
    const bool stripped = text.compare(end + kMessageEnd.size(), 1, " ") != 0;
    text.resize(end);
    if (stripped) text.erase(text.find_last_not_of(" \t\r\n") + 1);
    if (text.empty()) pieces.pop_back();
    return pieces;
  }
  throw InputError("the chat template does not show where its last message ends, so it cannot be continued");
}

}  // namespace

std::vector<TokenId> encode_plain(const ModelText& text, std::string_view prompt, bool allow_special) {
  std::vector<TokenId> ids = text.tokenizer->encode(prompt, allow_special);
  if (allow_special) return with_bos(std::move(ids), *text.tokenizer);
  if (text.tokenizer->add_bos() && text.tokenizer->bos()) ids.insert(ids.begin(), *text.tokenizer->bos());
  return ids;
}

std::vector<TextPiece> render_chat(const ModelText& text, const std::vector<ChatMessage>& messages,
                                   const ChatContext& context) {
  if (!context.instead && !text.chat_template) throw InputError("the model has no chat template: use --raw");
  const ChatTemplate& chat_template = context.instead ? *context.instead : *text.chat_template;
  ChatTemplateOptions options;
  options.bos_token = text.bos_text;
  options.eos_token = text.eos_text;
  options.add_generation_prompt = context.generation_prompt && !context.continue_final;
  options.date_iso = context.date_iso;
  options.variables_json = context.variables_json;
  if (!context.continue_final) return chat_template.render(messages, options);
  return without_end(chat_template.render(with_marked_end(messages), options));
}

std::vector<TokenId> encode_chat(const ModelText& text, const std::vector<ChatMessage>& messages,
                                 const ChatContext& context) {
  return with_bos(text.tokenizer->encode(render_chat(text, messages, context)), *text.tokenizer);
}

}  // namespace espalier

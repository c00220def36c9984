#include "session/chat_prompt.h"

#include "base/error.h"

namespace espalier {

std::vector<TokenId> encode_plain(const ModelText& text, std::string_view prompt) {
  std::vector<TokenId> ids = text.tokenizer->encode(prompt);
  if (text.tokenizer->add_bos() && text.tokenizer->bos()) ids.insert(ids.begin(), *text.tokenizer->bos());
  return ids;
}

std::vector<TokenId> encode_chat(const ModelText& text, const std::vector<ChatMessage>& messages,
                                 const ChatContext& context) {
  if (!context.instead && !text.chat_template) throw InputError("the model has no chat template: use --raw");
  const ChatTemplate& chat_template = context.instead ? *context.instead : *text.chat_template;
  ChatTemplateOptions options;
  options.bos_token = text.bos_text;
  options.eos_token = text.eos_text;
  options.date_iso = context.date_iso;
  options.variables_json = context.variables_json;
  std::vector<TokenId> ids = text.tokenizer->encode(chat_template.render(messages, options));
  // Some templates write BOS themselves, others leave it to the tokenizer: exactly one in either case.
  const auto bos = text.tokenizer->bos();
  if (text.tokenizer->add_bos() && bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

}  // namespace espalier

// From text to the ids of a prompt: plain, or through the model's chat template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/model_text.h"

namespace espalier {

// What a chat template may ask for besides the messages.
struct ChatContext {
  std::string date_iso = {};        // today, "2026-11-15"; empty: templates that want it use their own default
  std::string variables_json = {};  // further variables, for example {"enable_thinking": false}
  std::shared_ptr<const ChatTemplate> instead = {};  // of the model's own template
  bool generation_prompt = true;                     // the assistant's turn is opened at the end
  bool continue_final = false;  // or the last message stays open, without what the template writes behind it
};

// The ids of a plain prompt and of a chat, with BOS in front where the model wants it. allow_special: the text may
// spell control tokens. Throws InputError when the model has no chat template.
std::vector<TokenId> encode_plain(const ModelText& text, std::string_view prompt, bool allow_special = false);
std::vector<TokenId> encode_chat(const ModelText& text, const std::vector<ChatMessage>& messages,
                                 const ChatContext& context = {});
// What encode_chat() makes ids of.
std::vector<TextPiece> render_chat(const ModelText& text, const std::vector<ChatMessage>& messages,
                                   const ChatContext& context = {});

}  // namespace espalier

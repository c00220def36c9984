// Chat templates of model files (Jinja), rendered with provenance: what comes from the messages is marked, so that the
// tokenizer never reads a control token in it. Immutable after construction, safe to share between threads.
//
// The language is what the templates of the supported families use, with the results of Python's jinja2 as
// transformers configures it. A construct outside of it is an error with line and column, never other text. Templates
// are not trusted either: rendering is bounded in steps, text and nesting.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_piece.h"

namespace espalier {

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatTemplateOptions {
  std::string bos_token{};  // the text of the control token, as templates refer to it; undefined there when empty
  std::string eos_token{};
  bool add_generation_prompt = true;
  // What strftime_now() tells, "2024-07-26" or "2024-07-26T13:05:00". Empty: the template finds no strftime_now, and
  // Llama 3.2, for one, falls back to the date it was published with.
  std::string date_iso{};
  // Further variables as one JSON object, for example {"enable_thinking": false}. Empty: none. Its strings may not
  // spell control tokens, like those of the messages.
  std::string variables_json{};
};

class ChatTemplate {
 public:
  // Parses the template. Throws InputError naming line, column and the construct that is unknown or malformed.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  const std::string& source() const;
  // Whether it may ask for the date. To mention strftime_now is enough: a template that seldom asks does ask.
  bool mentions_date() const;

  // The prompt. Adjacent pieces differ in allow_special; none is empty. Roles and contents are user text throughout,
  // whatever the template does to them. Throws InputError when the template itself raises (raise_exception), uses
  // something unknown at run time or exceeds its bounds, and when a string is not valid UTF-8.
  std::vector<TextPiece> render(std::span<const ChatMessage> messages, const ChatTemplateOptions& options) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

}  // namespace espalier

// A chat at the terminal: the conversation, and what its commands do to it. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "decode/drafter.h"
#include "engine/answer_records.h"
#include "engine/answering.h"
#include "engine/drafting.h"
#include "terminal/chat_terminal.h"
#include "tree/token_tree.h"

namespace espalier {

struct TerminalChatOptions {
  TextOptions text = {};
  DraftOptions drafting = {};
  ChatSettings chat = {};
  RecordOptions records = {};
  bool quiet = false;  // no rate after an answer
};

// A round, kept for whoever wants to see it later.
struct KeptRound {
  explicit KeptRound(const Round& round);
  Round round() const;

  std::int64_t number;
  std::int64_t prefix;
  TokenTree tree;
  std::vector<Visit> visits;
  std::optional<FinishReason> finish;
};

class TerminalChat {
 public:
  // All must outlive this. `options`: with the system message and the sampling as they were chosen.
  TerminalChat(const TerminalChatOptions& options, const OpenEngine& engine, const ChatTerminal& terminal);

  // The next question, answered on the screen until an interrupt. Throws as Session::ask does; nothing changed then.
  void ask(const std::string& question, const InterruptSource& interrupt);
  // A command of chat_input.h, all but help and exit. Throws InputError where it cannot be done; nothing changed then.
  void obey(const std::string& command, const std::string& argument, const InterruptSource& interrupt);

 private:
  void open_drafting(const DraftOptions& options);
  TextEvents shown_events(const InterruptSource& interrupt);
  void tell_end(const TextResult& result);
  void forget();
  void regenerate(const InterruptSource& interrupt);
  void take_back();
  void change_system(const std::string& text);
  void set(const std::string& argument);
  void set_draft(const std::string& name);
  void save(const std::string& file);
  void load(const std::string& file);
  void show_tree();
  void show_statistics();

  TerminalChatOptions options_;
  const DraftOptions asked_drafting_;  // what was asked for; /set draft takes what fits its drafter
  const OpenEngine* engine_;
  const ChatTerminal* terminal_;
  std::unique_ptr<Drafting> drafting_;
  std::unique_ptr<Answering> answering_;
  std::optional<TraceWriter> trace_;
  std::unique_ptr<AnswerRecords> records_;
  std::optional<TextResult> last_;
  std::optional<KeptRound> last_round_;
  std::optional<std::int64_t> used_;  // positions of the context; nothing: the conversation was changed since
  std::string own_file_;              // what this chat wrote or read, and may write again
};

}  // namespace espalier

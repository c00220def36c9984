#include "cli/terminal_chat.h"

#include <algorithm>

#include "base/error.h"
#include "base/text_stream.h"
#include "base/untrusted_text.h"
#include "cli/answer_screen.h"
#include "cli/chat_settings.h"
#include "cli/line_reader.h"
#include "cli/output.h"
#include "cli/saved_chat.h"
#include "cli/terminal.h"
#include "engine/answer_json.h"
#include "engine/run_configuration.h"
#include "report/tree_picture.h"

namespace espalier {
namespace {

constexpr std::size_t kMostSavedBytes = std::size_t{1} << 26;

// Of what was asked for, what the drafters of another name can use.
DraftOptions fitting_drafting(const DraftOptions& asked, const std::string& name) {
  const auto has = [&](std::string_view drafter) {
    return fmt::format("+{}+", name).find(fmt::format("+{}+", drafter)) != std::string::npos;
  };
  const bool eagle = has("eagle") || has("eagle2") || has("eagle3") || name == "auto", heads = eagle || has("medusa");
  DraftOptions options = name == "none" ? DraftOptions() : asked;
  options.draft = name;
  if (!heads) {
    options.heads.clear();
    options.head_weights.reset();
    options.vocabulary.reset();
  }
  if (!eagle) {
    options.head_options.clear();
    options.window.reset();
  }
  if (!has("model")) options.draft_model.clear();
  if (!has("oracle")) options.oracle_profile.clear();
  return options;
}

}  // namespace

void say(std::string_view text) {
  if (!at_terminal()) return tell(text);
  print(text);
  flush_output();
}

void show_note(std::string_view text) {
  if (at_terminal()) say(text);
}

void show_dim(std::string_view text) {
  const bool colour = stdout_wants_colour("auto");
  show_note(fmt::format("{}{}{}", colour ? "\033[2m" : "", text, colour ? "\033[0m" : ""));
}

KeptRound::KeptRound(const Round& round)
    : number(round.number),
      prefix(round.prefix),
      tree(round.tree),
      visits(round.visits.begin(), round.visits.end()),
      finish(round.finish) {}

Round KeptRound::round() const {
  return {.number = number, .prefix = prefix, .tree = tree, .visits = visits, .finish = finish, .times = {}};
}

TerminalChat::TerminalChat(const ChatFlags& flags, const OpenEngine& engine, Screen& screen)
    : flags_(flags), asked_drafting_(flags.drafting), engine_(&engine), screen_(&screen) {
  open_drafting(flags_.drafting);
  const auto origin = [this] { return record_origin({*engine_, *drafting_, flags_.text, flags_.chat, false}); };
  const RecordOptions& asked = flags_.records;
  if (!asked.trace.empty()) trace_.emplace(TraceWriter::create(asked.trace, {.origin = origin()}, asked.existing));
  records_ =
      std::make_unique<AnswerRecords>(asked, "chat", origin, [this](const TracedTurn& turn) { trace_->add(turn); });
}

// Other drafters need another decoder; the conversation goes on in it, computed anew.
void TerminalChat::open_drafting(const DraftOptions& options) {
  auto drafting =
      std::make_unique<Drafting>(plan_drafting(options, engine_->places), *engine_, flags_.text.generate.seed);
  std::optional<std::vector<ChatMessage>> history;
  if (answering_) history = answering_->history();
  answering_.reset();  // never two at once: KV memory is large
  drafting_ = std::move(drafting);
  answering_ = std::make_unique<Answering>(*engine_, drafting_.get(), flags_.chat);
  if (history) answering_->restore(std::move(*history));
  flags_.drafting = options;
}

void TerminalChat::ask(const std::string& question, const InterruptGuard& interrupt) {
  AnswerScreen shown(interrupt, true);
  TextEvents events = shown.events();
  last_round_.reset();
  events.on_round = [this](const Round& round) { last_round_.emplace(round); };
  events.on_dropped = [this](std::int64_t turns) {
    const std::string line = fmt::format("the context is full: the oldest {} left out from here on",
                                         turns == 1 ? "turn is" : fmt::format("{} turns are", turns));
    at_terminal() ? show_dim("[" + line + "]\n") : screen_->remark(line);
  };
  last_ = records_->answer(*answering_, question, false, flags_.text, events);
  used_ = std::ssize(last_->prompt) + std::ssize(last_->generated.tokens);
  tell_end(*last_);
  print("\n");
  flush_output();
  const GenerateResult& generated = last_->generated;
  const std::string speed =
      engine_->device->is_stand_in() ? "" : fmt::format("{:.1f} tokens/s, ", tokens_per_second(generated));
  if (!flags_.quiet) show_dim(fmt::format("{}accept_L {:.2f}\n", speed, generated.accept_length()));
  screen_->detail(answer_line(generated, drafting_->name(), *engine_->device));
}

// That the model repeats itself is told to a script too: its answer ends before the model wanted it to.
void TerminalChat::tell_end(const TextResult& result) {
  if (result.loops) {
    if (at_terminal())
      show_note(" [the model repeats itself]");
    else
      screen_->remark("the model repeats itself: the answer ends here");
    return;
  }
  switch (result.generated.finish_reason) {
    case FinishReason::cancelled: show_note(" [stopped]"); break;
    case FinishReason::token_limit: show_note(" [--max-tokens reached]"); break;
    case FinishReason::context_limit:
      show_note(flags_.text.drop_oldest ? " [the context is full]"
                                        : " [the context is full: /undo and /reset make room]");
      break;
    default: break;
  }
}

void TerminalChat::obey(const std::string& command, const std::string& argument, const InterruptGuard& interrupt) {
  if (command == "reset") return forget();
  if (command == "system") return change_system(argument);
  if (command == "set") return set(argument);
  if (command == "regen") return regenerate(interrupt);
  if (command == "undo") return take_back();
  if (command == "save") return save(argument);
  if (command == "load") return load(argument);
  if (command == "tree") return show_tree();
  check(command == "stats", "chat: nobody obeys /{}", command);
  show_statistics();
}

void TerminalChat::forget() {
  answering_->reset();
  used_.reset();
}

// A question whose answer fails now keeps the one it had.
void TerminalChat::regenerate(const InterruptGuard& interrupt) {
  const std::vector<ChatMessage> before = answering_->history();
  const std::optional<std::string> question = answering_->take_back();
  if (!question) throw InputError("/regen: there is no question yet");
  ++flags_.text.generate.seed;  // wraps around
  try {
    ask(*question, interrupt);
  } catch (...) {
    answering_->restore(before);
    --flags_.text.generate.seed;
    throw;
  }
}

void TerminalChat::take_back() {
  const std::optional<std::string> question = answering_->take_back();
  if (!question) throw InputError("/undo: there is no question yet");
  used_.reset();
  std::string line = *question;
  std::ranges::replace(line, '\n', ' ');
  show_dim(fmt::format("took back: {}\n", in_quotes(line)));
}

void TerminalChat::change_system(const std::string& text) {
  if (!text.empty()) {
    flags_.chat.system = text;
    used_.reset();
    return answering_->change_system(text);
  }
  const std::string& system = answering_->system();
  say(system.empty() ? flags_.chat.chat_template.empty() ? "the template's own\n" : "none\n" : system + "\n");
}

void TerminalChat::set(const std::string& argument) {
  if (argument.empty()) return say(fmt::format("draft {}, {}\n", drafting_->name(), shown_settings(flags_.text)));
  const std::size_t space = std::min(argument.find_first_of(" \t"), argument.size());
  const std::string name = argument.substr(0, space);
  const std::size_t value = argument.find_first_not_of(" \t", space);
  if (value == std::string::npos) input_error("/set {}: expected a value behind it, got nothing", name);
  name == "draft" ? set_draft(argument.substr(value)) : set_by_name(name, argument.substr(value), flags_.text);
}

void TerminalChat::set_draft(const std::string& name) {
  if (trace_) throw InputError("/set draft: not with --trace, a trace has the drafters of its beginning");
  open_drafting(fitting_drafting(asked_drafting_, name));
  last_round_.reset();
}

void TerminalChat::save(const std::string& file) {
  const bool own = file == own_file_;
  try {
    write_output(file, own ? Existing::replace : flags_.records.existing, saved_chat(answering_->history()));
  } catch (const DeviceError& error) {
    throw InputError(error.what());  // a full disk must not end the conversation that it did not take
  }
  own_file_ = file;
  show_dim(fmt::format("saved {} messages\n", answering_->history().size()));
}

void TerminalChat::load(const std::string& file) {
  answering_->restore(parse_saved_chat(read_text_stream(file, kMostSavedBytes), file));
  own_file_ = file;
  used_.reset();
  show_dim(fmt::format("loaded {} messages\n", answering_->history().size()));
}

void TerminalChat::show_tree() {
  if (!last_round_) throw InputError("/tree: there is no round yet");
  const Tokenizer& tokenizer = *engine_->text->tokenizer;
  const TreePicture picture = picture_of(
      last_round_->round(), [&](std::int32_t token) { return tokenizer.bytes(token, false); }, drafting_->drafters());
  say(render_tree_text(picture, {.width = screen_width(), .colour = at_terminal() && stdout_wants_colour("auto")}));
}

void TerminalChat::show_statistics() {
  std::string text;
  if (last_) text += answer_line(last_->generated, drafting_->name(), *engine_->device) + "\n";
  if (used_) text += fmt::format("context: {} of {} positions\n", *used_, engine_->decoder.context);
  say(text + shown_settings(flags_.text) + "\n");
}

}  // namespace espalier

#include "terminal/terminal_chat.h"

#include <algorithm>

#include "base/error.h"
#include "base/text_stream.h"
#include "base/untrusted_text.h"
#include "engine/answer_json.h"
#include "engine/run_configuration.h"
#include "report/tree_picture.h"
#include "terminal/chat_settings.h"
#include "terminal/saved_chat.h"

namespace espalier {
namespace {

constexpr std::string_view kReading = "reading the prompt";
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

KeptRound::KeptRound(const Round& round)
    : number(round.number),
      prefix(round.prefix),
      tree(round.tree),
      visits(round.visits.begin(), round.visits.end()),
      finish(round.finish) {}

Round KeptRound::round() const {
  return {.number = number, .prefix = prefix, .tree = tree, .visits = visits, .finish = finish, .times = {}};
}

TerminalChat::TerminalChat(const TerminalChatOptions& options, const OpenEngine& engine, const ChatTerminal& terminal)
    : options_(options), asked_drafting_(options.drafting), engine_(&engine), terminal_(&terminal) {
  open_drafting(options_.drafting);
  const auto origin = [this] { return record_origin({*engine_, *drafting_, options_.text, options_.chat, false}); };
  const RecordOptions& asked = options_.records;
  if (!asked.trace.empty()) trace_.emplace(TraceWriter::create(asked.trace, {.origin = origin()}, asked.existing));
  records_ =
      std::make_unique<AnswerRecords>(asked, "chat", origin, [this](const TracedTurn& turn) { trace_->add(turn); });
}

// Other drafters need another decoder; the conversation goes on in it, computed anew.
void TerminalChat::open_drafting(const DraftOptions& options) {
  auto drafting =
      std::make_unique<Drafting>(plan_drafting(options, engine_->places), *engine_, options_.text.generate.seed);
  std::optional<std::vector<ChatMessage>> history;
  if (answering_) history = answering_->history();
  answering_.reset();  // never two at once: KV memory is large
  drafting_ = std::move(drafting);
  answering_ = std::make_unique<Answering>(*engine_, drafting_.get(), options_.chat);
  if (history) answering_->restore(std::move(*history));
  options_.drafting = options;
}

// A bar while a long prompt is read, then the text as it comes.
TextEvents TerminalChat::shown_events(const InterruptSource& interrupt) {
  TextEvents events;
  events.cancelled = [&interrupt] { return interrupt.interrupted(); };
  events.on_prefill = [this](std::int64_t done, std::int64_t total) {
    terminal_->listener->progress(kReading, static_cast<double>(done) / static_cast<double>(total));
  };
  events.on_text = [this](std::string_view text) { terminal_->print(text); };
  return events;
}

void TerminalChat::ask(const std::string& question, const InterruptSource& interrupt) {
  TextEvents events = shown_events(interrupt);
  last_round_.reset();
  events.on_round = [this](const Round& round) { last_round_.emplace(round); };
  events.on_dropped = [this](std::int64_t turns) {
    const std::string line = fmt::format("the context is full: the oldest {} left out from here on",
                                         turns == 1 ? "turn is" : fmt::format("{} turns are", turns));
    terminal_->people ? terminal_->show_dim("[" + line + "]\n") : terminal_->listener->remark(line);
  };
  last_ = records_->answer(*answering_, question, false, options_.text, events);
  terminal_->listener->progress(kReading, 1);  // where it was stopped the bar still stands there
  used_ = std::ssize(last_->prompt) + std::ssize(last_->generated.tokens);
  tell_end(*last_);
  terminal_->print("\n");
  const GenerateResult& generated = last_->generated;
  const std::string speed =
      engine_->device->is_stand_in() ? "" : fmt::format("{:.1f} tokens/s, ", tokens_per_second(generated));
  if (!options_.quiet) terminal_->show_dim(fmt::format("{}accept_L {:.2f}\n", speed, generated.accept_length()));
  terminal_->listener->detail(answer_line(generated, drafting_->name(), *engine_->device));
}

// That the model repeats itself is told to a script too: its answer ends before the model wanted it to.
void TerminalChat::tell_end(const TextResult& result) {
  if (result.loops) {
    if (terminal_->people)
      terminal_->show_note(" [the model repeats itself]");
    else
      terminal_->listener->remark("the model repeats itself: the answer ends here");
    return;
  }
  switch (result.generated.finish_reason) {
    case FinishReason::cancelled: terminal_->show_note(" [stopped]"); break;
    case FinishReason::token_limit: terminal_->show_note(" [--max-tokens reached]"); break;
    case FinishReason::context_limit:
      terminal_->show_note(options_.text.drop_oldest ? " [the context is full]"
                                                     : " [the context is full: /undo and /reset make room]");
      break;
    default: break;
  }
}

void TerminalChat::obey(const std::string& command, const std::string& argument, const InterruptSource& interrupt) {
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
void TerminalChat::regenerate(const InterruptSource& interrupt) {
  const std::vector<ChatMessage> before = answering_->history();
  const std::optional<std::string> question = answering_->take_back();
  if (!question) throw InputError("/regen: there is no question yet");
  ++options_.text.generate.seed;  // wraps around
  try {
    ask(*question, interrupt);
  } catch (...) {
    answering_->restore(before);
    --options_.text.generate.seed;
    throw;
  }
}

void TerminalChat::take_back() {
  const std::optional<std::string> question = answering_->take_back();
  if (!question) throw InputError("/undo: there is no question yet");
  used_.reset();
  std::string line = *question;
  std::ranges::replace(line, '\n', ' ');
  terminal_->show_dim(fmt::format("took back: {}\n", in_quotes(line)));
}

void TerminalChat::change_system(const std::string& text) {
  if (!text.empty()) {
    options_.chat.system = text;
    used_.reset();
    return answering_->change_system(text);
  }
  const std::string& system = answering_->system();
  terminal_->say(system.empty() ? options_.chat.chat_template.empty() ? "the template's own\n" : "none\n"
                                : system + "\n");
}

void TerminalChat::set(const std::string& argument) {
  if (argument.empty())
    return terminal_->say(fmt::format("draft {}, {}\n", drafting_->name(), shown_settings(options_.text)));
  const std::size_t space = std::min(argument.find_first_of(" \t"), argument.size());
  const std::string name = argument.substr(0, space);
  const std::size_t value = argument.find_first_not_of(" \t", space);
  if (value == std::string::npos) input_error("/set {}: expected a value behind it, got nothing", name);
  name == "draft" ? set_draft(argument.substr(value)) : set_by_name(name, argument.substr(value), options_.text);
}

void TerminalChat::set_draft(const std::string& name) {
  if (trace_) throw InputError("/set draft: not with --trace, a trace has the drafters of its beginning");
  open_drafting(fitting_drafting(asked_drafting_, name));
  last_round_.reset();
}

void TerminalChat::save(const std::string& file) {
  const bool own = file == own_file_;
  try {
    write_output(file, own ? Existing::replace : options_.records.existing, saved_chat(answering_->history()));
  } catch (const DeviceError& error) {
    throw InputError(error.what());  // a full disk must not end the conversation that it did not take
  }
  own_file_ = file;
  terminal_->show_dim(fmt::format("saved {} messages\n", answering_->history().size()));
}

void TerminalChat::load(const std::string& file) {
  answering_->restore(parse_saved_chat(read_text_stream(file, kMostSavedBytes), file));
  own_file_ = file;
  used_.reset();
  terminal_->show_dim(fmt::format("loaded {} messages\n", answering_->history().size()));
}

void TerminalChat::show_tree() {
  if (!last_round_) throw InputError("/tree: there is no round yet");
  const Tokenizer& tokenizer = *engine_->text->tokenizer;
  const TreePicture picture = picture_of(
      last_round_->round(), [&](std::int32_t token) { return tokenizer.bytes(token, false); }, drafting_->drafters());
  terminal_->say(
      render_tree_text(picture, {.width = terminal_->width(), .colour = terminal_->people && terminal_->colour}));
}

void TerminalChat::show_statistics() {
  std::string text;
  if (last_) text += answer_line(last_->generated, drafting_->name(), *engine_->device) + "\n";
  if (used_) text += fmt::format("context: {} of {} positions\n", *used_, engine_->decoder.context);
  terminal_->say(text + shown_settings(options_.text) + "\n");
}

}  // namespace espalier

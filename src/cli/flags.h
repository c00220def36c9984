// The flags that subcommands share. They fill the options of the engine; CLI11 itself is seen by .cpp files alone.
#pragma once

#include <optional>
#include <string>

#include "cli/mode_flags.h"
#include "engine/answer_records.h"
#include "engine/answering.h"
#include "engine/engine.h"

namespace CLI {
class App;
}

namespace espalier {

struct EngineFlags {
  EngineOptions options = {};  // without modes and places
  ModeFlags modes = {};
  bool verbose = false;
};

struct PromptFlags {
  std::optional<std::string> prompt = {};
  std::string file = {};
  ChatSettings chat = {};
  bool raw = false;  // without the chat template
};

// A headline of --help: options that are added while it lives stand below it.
class HelpGroup {
 public:
  HelpGroup(CLI::App& app, const std::string& title);
  ~HelpGroup();
  HelpGroup(const HelpGroup&) = delete;
  HelpGroup& operator=(const HelpGroup&) = delete;

 private:
  CLI::App& app_;
};

void add_model_flag(CLI::App& app, EngineOptions& options);
void add_threads_flag(CLI::App& app, int& threads, const std::string& what = "threads");
void add_engine_flags(CLI::App& app, EngineFlags& flags);
void add_sampling_flags(CLI::App& app, TextOptions& options);
void add_chat_flags(CLI::App& app, ChatSettings& settings);
// --system-default and --chat-template, for commands that choose a system message where none is given.
void add_opening_flags(CLI::App& app, ChatSettings& settings);
// Throws InputError where the system message is given twice over.
void check_chat_settings(const ChatSettings& settings);
void add_prompt_flags(CLI::App& app, PromptFlags& flags);
// --force, for outputs that the user names.
void add_force_flag(CLI::App& app, Existing& existing);
void add_record_flags(CLI::App& app, RecordOptions& options);

// With the places of this process, and what its environment says of modes.
EngineOptions engine_options(const EngineFlags& flags);

// PROMPT, "-" for standard input, or --file. Throws InputError unless exactly one is given.
std::string read_prompt(const std::optional<std::string>& prompt, const std::string& file);
// How the conversation begins. Without --system that may be chosen for the model; a raw prompt has no beginning.
ChatSettings opening(const PromptFlags& flags, const OpenEngine& engine);
// The text that is meant; throws InputError where the flags contradict each other or it is empty.
std::string prompt_text(const PromptFlags& flags);

}  // namespace espalier

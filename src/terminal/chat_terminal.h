// The terminal that a conversation happens at, as its owner hands it in: what is typed, what is shown, and Ctrl-C.
// Nothing here looks at the environment or at the streams of the process.
#pragma once

#include <cstdio>
#include <functional>
#include <string_view>

#include "engine/listener.h"

namespace espalier {

// Ctrl-C as a question.
class InterruptSource {
 public:
  virtual ~InterruptSource() = default;

  virtual bool interrupted() const = 0;
  virtual void clear() = 0;
  // Waits until the descriptor can be read, or has ended: true. False when an interrupt came first.
  virtual bool wait_for_input(int descriptor) = 0;
};

struct ChatTerminal {
  std::FILE* in = nullptr;
  std::FILE* out = nullptr;                          // for the line editor; all else goes through print()
  std::function<void(std::string_view)> print = {};  // shows it at once, or throws
  std::function<void(std::string_view)> tell = {};   // beside what is asked for: standard error
  std::function<int()> width = {};                   // columns
  bool people = false;    // somebody sits at both ends: what is said to people alone is said then
  bool editable = false;  // lines can be edited here
  bool colour = false;
  Listener* listener = nullptr;  // remarks, details and progress

  // Where people sit what a command says is part of the conversation; a script finds it beside the answers.
  void say(std::string_view text) const;
  // Shown to people alone; a script gets the answers.
  void show_note(std::string_view text) const;
  // The same, in grey where the terminal likes colour.
  void show_dim(std::string_view text) const;
};

}  // namespace espalier

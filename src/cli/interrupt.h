// Ctrl-C as a question instead of the end: while a guard lives an interrupt sets a flag that the decoding loop can ask
// for, and wakes a wait for input; at all other times it ends the program at once. One guard at a time.
#pragma once

#include "terminal/chat_terminal.h"

namespace espalier {

// Ends a command from wherever it is: main() says so, and its exit status is kInterrupted.
struct Interrupted {};

// From now on Ctrl-C and SIGTERM end the program at once, whatever it is at, with one line and the exit code of shells:
// 130, 143. A signal that whoever started the program has it ignore stays ignored.
void end_on_signals();

class InterruptGuard final : public InterruptSource {
 public:
  InterruptGuard();            // from now on Ctrl-C sets the flag, and the flag is clear
  ~InterruptGuard() override;  // Ctrl-C does again what it did before
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const override;
  void clear() override;
  bool wait_for_input(int descriptor) override;
};

}  // namespace espalier

// Ctrl-C as a question the decoding loop can ask: while a guard lives an interrupt sets a flag, at all other times it
// ends the program as usual. One guard at a time.
#pragma once

namespace espalier {

class InterruptGuard {
 public:
  InterruptGuard();   // from now on Ctrl-C sets the flag, and the flag is clear
  ~InterruptGuard();  // Ctrl-C does again what it did before
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
};

}  // namespace espalier

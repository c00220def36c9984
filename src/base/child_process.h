// Another program, run to its end as a child of this one: what it prints is kept, it is ended when nobody wants it any
// more, and it does not outlive this process. Its standard input is empty.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct ChildCommand {
  std::vector<std::string> words = {};                   // the program's path first
  std::vector<std::string> environment = {};             // all of it, "NAME=value"; empty: that of this process
  std::function<void(std::string_view)> on_output = {};  // each piece of its standard output, as it comes
  std::function<bool()> cancelled = {};                  // asked several times a second
};

struct ChildResult {
  std::string problem = {};    // why it could not be started; empty: it was
  int status = 0;              // as waitpid says
  std::string output = {};     // all of its standard output
  std::string complaint = {};  // the last line of its standard error
  bool cancelled = false;      // and therefore ended by a signal, if need be by one that nothing can ignore

  bool succeeded() const { return problem.empty() && !cancelled && status == 0; }
};

// Throws DeviceError where the system has no more descriptors or processes.
ChildResult run_child(const ChildCommand& command);

// How a child that did not succeed has ended: "ended by signal 11 (Segmentation fault)", "exit code 3: no memory".
std::string end_of_child(const ChildResult& result);

}  // namespace espalier

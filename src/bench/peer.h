// llama.cpp's llama-bench as the peer that a benchmark is measured against: a program that is started, watched and
// asked for one figure at a time. What it does wrong (a crash, a message, no numbers) is told and never ours.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

// One figure in llama-bench's words: `prompt` tokens in one step, or `generated` tokens one by one, behind `depth`
// tokens that are not timed.
struct PeerTest {
  std::int64_t prompt = 0;
  std::int64_t generated = 0;
  std::int64_t depth = 0;
};

struct PeerAnswer {
  std::optional<double> seconds = {};  // of the step, or of one generated token; nothing: it failed
  std::string problem = {};            // why
  bool interrupted = false;            // it was cancelled: the program was ended
};

// The median of the samples in what `llama-bench -o json` printed for one test. Something else: a problem.
PeerAnswer read_peer_answer(std::string_view json, const PeerTest& test);

struct PeerOptions {
  std::string model = {};
  int threads = 1;
  std::string kv = "f16";
};

class LlamaBench {
 public:
  // Throws InputError unless this is a program.
  LlamaBench(std::string program, PeerOptions options);

  const std::string& program() const { return program_; }
  // Runs the program once. A program that fails behind a context is asked again without one, which can only make it
  // faster; `depth_used` says so.
  PeerAnswer measure(PeerTest test, const std::function<bool()>& cancelled, std::int64_t& depth_used) const;

 private:
  PeerAnswer run(const PeerTest& test, const std::function<bool()>& cancelled) const;

  std::string program_;
  PeerOptions options_;
};

}  // namespace espalier

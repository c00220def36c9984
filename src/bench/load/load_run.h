// One load on one server: users who ask one question after another (closed loop), requests that arrive by themselves
// (open loop), or users who are disturbed by long prompts. What comes back is kept as it was heard and read afterwards,
// so that the client takes little from a server on the same machine. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bench/load/answer_record.h"
#include "bench/load/load_prompts.h"
#include "bench/load/load_target.h"

namespace espalier {

struct LoadShape {
  int users = 0;    // closed loop, or
  double rate = 0;  // open loop: requests a second
};

struct LoadSettings {
  LoadApi api = LoadApi::chat;
  std::int64_t tokens = 128;             // of an answer
  std::int64_t requests = 4;             // of each user; in the open loop, in all
  double seconds = 0;                    // instead: requests begin for so long
  std::int64_t interrupt_tokens = 0;     // the length of the prompts that disturb; 0: there are none
  std::size_t interrupt_characters = 0;  // about the same
  std::int64_t interrupt_gaps = 500;     // the users' gaps that are wanted while such a prompt is read
  std::chrono::milliseconds patience{300'000};
};

struct LoadJob {
  const LoadTarget& target;
  const LoadSettings& settings;
  const LoadPrompts& prompts;
  LoadShape shape = {};
  std::uint64_t number = 0;  // of the load: no two ask the same
  std::size_t server = 0;    // which of those that are measured
};

struct LoadRun {
  double seconds = 0;                         // until the last answer was there
  std::vector<AnswerRecord> answers = {};     // in the order of their requests
  std::vector<AnswerRecord> interrupts = {};  // the prompts that disturb: answers of one token
  bool cancelled = false;
};

LoadRun run_load(const LoadJob& job, const std::function<bool()>& cancelled);

// A single request, for warming up and for what its usage tells. Nothing: it was cancelled.
std::optional<AnswerRecord> ask_once(const LoadJob& job, const LoadPrompt& prompt, std::int64_t tokens,
                                     const std::function<bool()>& cancelled);

}  // namespace espalier

// Which prompts wait for others. Prompts that begin alike and come together (the choices of one request, users of one
// system message) would be computed side by side, once each; so the younger ones wait for the oldest, their leader, and
// go on with what that leaves in the prefix index. Nobody waits where that saves less than half of what he still has to
// compute, and nobody waits for a younger one, so waiting has an end. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace espalier {

// A prompt that is being read, or waits to be.
struct PromptState {
  std::int64_t id = 0;                   // in the order of arrival
  std::span<const std::int32_t> tokens;  // to compute
  std::string_view salt = {};
  std::int64_t has = 0;       // positions that it has, or would find
  std::int64_t most = 0;      // that it may take from others; 0: it computes all of them
  std::int64_t findable = 0;  // positions of it that others find already
  bool leads = false;         // what it computes can be found
};

// The older prompt that is worth waiting for; -1: none. The one with most in common, the oldest among equals.
std::int64_t leader_of(const PromptState& prompt, std::span<const PromptState> older);

}  // namespace espalier

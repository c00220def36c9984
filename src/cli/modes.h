// How a run computes: a mode is a preset over plain options, and each option can be set by itself. A flag beats the
// environment, which beats the mode (docs/modes.md). On the CPU devices none of this changes a bit of the text.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "decode/decoder.h"

namespace espalier {

// What was asked for by flags; the rest follows from environment and mode.
struct ModeFlags {
  std::optional<std::string> mode = {};
  std::optional<std::string> device = {};
  std::optional<std::string> checked = {};
  std::optional<std::string> invariants = {};
  std::optional<std::string> attention = {};
  std::optional<std::string> cache = {};
  std::optional<std::string> reorder = {};
  std::optional<std::string> mask = {};
};

// What holds after all, in the words of the flags.
struct ModeOptions {
  std::string mode = {};        // performance, reference, eager-aligned
  std::string device = {};      // cpu, reference
  std::string checked = {};     // off, plain, ascend
  std::string invariants = {};  // off, on
  std::string attention = {};   // fused, eager
  std::string cache = {};       // shared, replicate
  std::string reorder = {};     // fast, full
  std::string mask = {};        // auto, dense, list
};

// The value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

void add_mode_flags(CLI::App& app, ModeFlags& flags);

// Throws InputError: a value nobody knows, naming flag or variable, or options that exclude each other. A variable that
// is set to nothing counts as not set.
ModeOptions resolve_modes(const ModeFlags& flags, const Environment& environment);

// The part of the options that concerns the decoder.
void apply_modes(const ModeOptions& modes, DecoderOptions& options);

}  // namespace espalier

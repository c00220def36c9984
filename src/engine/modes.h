// How a run computes: a mode is a preset over plain options, and each option can be set by itself (docs/modes.md). On
// the CPU devices none of this changes a bit of the text.
#pragma once

#include <optional>
#include <string>

#include "decode/decoder_options.h"

namespace espalier {

// A value that somebody asked for, and what messages call the one who did: "--attention", "ESPALIER_ATTENTION".
struct AskedMode {
  std::string value = {};
  std::string by = {};
};

// What was asked for; the rest follows from the mode.
struct ModeRequest {
  std::optional<AskedMode> mode = {};
  std::optional<AskedMode> device = {};
  std::optional<AskedMode> checked = {};
  std::optional<AskedMode> invariants = {};
  std::optional<AskedMode> attention = {};
  std::optional<AskedMode> cache = {};
  std::optional<AskedMode> reorder = {};
  std::optional<AskedMode> mask = {};
  std::optional<AskedMode> round_route = {};
};

// What holds after all.
struct ModeOptions {
  std::string mode = {};         // performance, reference, eager-aligned
  std::string device = {};       // auto, cpu, reference, cuda, cuda:N, ascend, ascend:N; of an open engine never auto
  std::string checked = {};      // off, plain, ascend
  std::string invariants = {};   // off, on
  std::string attention = {};    // fused, eager
  std::string cache = {};        // shared, replicate
  std::string reorder = {};      // fast, full
  std::string mask = {};         // auto, dense, list
  std::string round_route = {};  // auto, host, device
};

// Throws InputError: a value nobody knows, naming who asked for it, or options that exclude each other.
ModeOptions resolve_modes(const ModeRequest& request);

// The part of the options that concerns the decoder.
void apply_modes(const ModeOptions& modes, DecoderOptions& options);

}  // namespace espalier

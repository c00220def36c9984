// A draft head on disk, before anyone knows what kind it is: a folder with safetensors and config.json, a .safetensors
// file with config.json beside it, or a GGUF file. Immutable after opening.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/tensor_info.h"
#include "model/weight_reader.h"

namespace espalier {

struct HeadFiles {
  std::filesystem::path path = {};             // as given
  std::filesystem::path folder = {};           // where its files lie
  std::unique_ptr<TensorSource> tensors = {};  // a Gguf where `gguf` is set
  const Gguf* gguf = nullptr;
  std::string config = "null";   // JSON: the object in config.json; null with a GGUF, which has its own metadata
  std::string config_file = {};  // for messages: config.json or the GGUF
};

// In a folder: medusa_lm_head.safetensors, model.safetensors or its index with shards, or the only .safetensors there
// is; where there is none, head-q8_0.gguf or the only GGUF file. Throws InputError: no such path, no weights in it, no
// config.json, or weights that only PyTorch can read (.bin, .pt: the message prints the train/convert.py command that
// turns them into safetensors).
HeadFiles open_head(const std::filesystem::path& path);

// EAGLE-1, EAGLE-2 and HASS heads are one network, eagle2.
enum class HeadKind { eagle2, eagle3, medusa };
std::string_view name(HeadKind kind);

// By tensor names and shapes; what the config calls itself only ever refuses. P-EAGLE heads, EAGLE-3 heads on the last
// hidden state, relatives of EAGLE-2 with norms of their own, modules for multi-token prediction, merged Medusa-2
// models, low-rank Medusa heads, and what is no head, are refused by name.
HeadKind classify_head(const HeadFiles& files);

// What a user says about a head that its files leave open or get wrong (--head-option NAME=VALUE). The first three
// concern EAGLE heads; Medusa heads have no use for them.
struct HeadOptions {
  std::optional<std::vector<std::int64_t>> taps = {};  // EAGLE-3: boundaries of the teacher, ascending
  std::optional<double> rope_theta = {};
  std::optional<bool> norm_output = {};  // EAGLE-3: feed back the normed state
  WeightMode weights = WeightMode::stored;
  std::optional<std::int64_t> vocabulary = {};  // the most frequent tokens it may guess, at least 1; nothing: all
};

// NAME=VALUE into the options: taps=2,15,27, rope_theta=1e6 or norm_output=true|false, each at most once. Throws
// InputError naming the options there are.
void parse_head_option(std::string_view text, HeadOptions& options);

}  // namespace espalier

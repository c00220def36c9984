// Everything a text depends on besides its request, as one hash, and nothing else: not threads, instruction sets,
// drafters or company. Two engines with equal fingerprints give equal texts for equal requests and seeds. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/arithmetic.h"
#include "decode/sampler.h"
#include "engine/engine.h"

namespace espalier {

class CanonicalText;

// What belongs to model and arithmetic. Hashes are SHA-256.
struct ModelFingerprint {
  std::string model = {};                     // of the file, or of its shards (model_hash.h)
  std::string weights = "file";               // how its weights are computed with: --weights
  std::string configuration = {};             // of config.json; empty: the model's file has it inside
  std::string tokenizer = {};                 // of its files; that of a GGUF file is the model's
  std::vector<std::int32_t> end_tokens = {};  // that end an answer by themselves
  std::string chat_template = {};             // of its text; empty: there is none
  std::string kv = {};                        // the element type of keys and values
  int arithmetic = kArithmetic;               // docs/arithmetic.md
  // Where a linear has float weights, what such sums are added up of and how, by this device; else both are empty.
  std::string float_order = {};
  std::string activations = {};

  bool operator==(const ModelFingerprint&) const = default;
};

// Of an open engine, with the template that stands in for the model's own, where one does. Throws InputError where a
// file cannot be read. The first time it reads the whole model (model_hash.h).
ModelFingerprint model_fingerprint(const OpenEngine& engine, const ChatTemplate* instead = nullptr);

// The first part in which two differ, for a message: "model is 1f2e..., expected 77ab..."; nothing: they are equal.
std::optional<std::string> first_other_part(const ModelFingerprint& found, const ModelFingerprint& expected);

// The lines of a fingerprint and of sampling options, as parts of a longer text.
void append_fingerprint(const ModelFingerprint& fingerprint, CanonicalText& text);
void append_sampling(const SamplingOptions& sampling, CanonicalText& text);

// The same with what a server's answers depend on besides: `system_fingerprint`.
struct ServerFingerprint {
  ModelFingerprint model = {};
  std::int64_t context = 0;             // positions of a sequence
  SamplingOptions sampling = {};        // of requests that do not say
  std::string template_variables = {};  // likewise, a JSON object; empty: none
  std::string date = {};                // that templates are told; empty: this one does not ask (date_for())
};
// "b" and 32 hexadecimal digits.
std::string server_fingerprint(const ServerFingerprint& parts);

// The date as far as texts depend on it: none where the template that is used never asks for one.
std::string date_for(const OpenEngine& engine, const ChatTemplate* instead, const std::string& date);

}  // namespace espalier

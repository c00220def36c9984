// A receipt with something in every field, and its canonical form: that of docs/receipts.md. For tests.
#pragma once

#include <limits>
#include <string>

#include "engine/receipt.h"

namespace espalier {

inline Receipt example_receipt() {
  const SamplingOptions sampling{.logit_bias = {{7, -std::numeric_limits<float>::infinity()}, {42, 1.5f}},
                                 .repeat_penalty = 1.1f,
                                 .temperature = 0.8f,
                                 .top_k = 40,
                                 .top_p = 0.95f};
  return {.origin = {.fingerprint = {.model = std::string(64, 'a'),
                                     .tokenizer = std::string(64, 'a'),
                                     .end_tokens = {2},
                                     .chat_template = std::string(64, 'c'),
                                     .kv = "f16",
                                     .arithmetic = 2},
                     .context = 4096,
                     .date = "2026-11-15"},
          .prompt = {1, 4093, 198},
          .options = {.generate = {.sampling = sampling,
                                   .seed = 18446744073709551615u,
                                   .max_tokens = 64,
                                   .stop_tokens = {5},
                                   .min_tokens = 1},
                      .stop = {"\n\n", "\xc3\xa4"}},
          .answer = {9707, 11, 2},
          .finish_reason = "stop"};
}

inline const std::string kExampleCanonicalForm =
    "espalier receipt 1\n"
    "model aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
    "weights file\n"
    "configuration -\n"
    "tokenizer aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
    "end_tokens 2\n"
    "chat_template cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\n"
    "kv f16\n"
    "arithmetic 2\n"
    "float_order -\n"
    "activations -\n"
    "context 4096\n"
    "date 323032362d31312d3135\n"
    "logit_bias 7:ff800000 42:3fc00000\n"
    "repeat_penalty 3f8ccccd\n"
    "presence_penalty 00000000\n"
    "frequency_penalty 00000000\n"
    "temperature 3f4ccccd\n"
    "top_k 40\n"
    "top_p 3f733333\n"
    "min_p 00000000\n"
    "seed 18446744073709551615\n"
    "max_tokens 64\n"
    "min_tokens 1\n"
    "stop 0a0a c3a4\n"
    "include_stop 0\n"
    "stop_tokens 5\n"
    "ignore_eos 0\n"
    "loop_guard 0\n"
    "prompt 1 4093 198\n"
    "answer 9707 11 2\n"
    "finish_reason stop\n";

}  // namespace espalier

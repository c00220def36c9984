// Cuts a text into words; merges never cross their borders. A sequence of steps, each of which cuts the words of the
// one before. Immutable after construction, safe to share between threads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/pretokenizer_regex.h"

namespace espalier {

class Pretokenizer {
 public:
  struct Word {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Step {
    PretokenizerRegex regex;
    bool keep_gaps = true;  // what lies between two matches is a word too; otherwise it is dropped
  };

  // Without steps the whole text is one word.
  explicit Pretokenizer(std::vector<Step> steps = {});

  // The words in order, none empty. Requires valid UTF-8.
  std::vector<Word> split(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

// The pattern of the byte-level pre-tokenizer itself (GPT-2).
extern const std::string_view kGpt2Pattern;

// A pre-tokenizer known by the name GGUF files use (tokenizer.ggml.pre).
struct NamedPretokenizer {
  std::string_view name;
  std::vector<std::string_view> patterns;  // one step each
  bool ignore_merges = false;              // a word that is a token needs no merges
  bool add_bos = false;                    // when the file does not say
  bool nfc = false;                        // the vocabulary was trained on composed text
};

// Throws InputError naming `where` and the known names.
const NamedPretokenizer& find_pretokenizer(std::string_view name, std::string_view where);

}  // namespace espalier

// The draft vocabulary of an EAGLE-3 head: which token of the teacher each of its output rows stands for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "format/tensor_info.h"

namespace espalier {

enum class D2tMeaning { offset, token };  // safetensors: draft id i is token i + d2t[i]; GGUF: token d2t[i]

// Null tensors are absent. `t2d` marks the tokens of the draft vocabulary and must agree where it is present.
struct VocabularyTables {
  const TensorInfo* d2t = nullptr;
  const TensorInfo* t2d = nullptr;
  D2tMeaning meaning = D2tMeaning::offset;
  std::int64_t draft_vocabulary = 0;
  std::int64_t vocabulary = 0;  // of the teacher
};

// [draft vocabulary], in [0, vocabulary), each token once. Throws InputError: `file`, table, expected, got.
std::vector<std::int32_t> read_target_ids(const VocabularyTables& tables, std::string_view file);

}  // namespace espalier

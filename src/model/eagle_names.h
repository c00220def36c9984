// The tensors of an EAGLE head under one set of names. SafeAILab and SpecForge say midlayer.* in EAGLE-3 heads,
// speculators layers.0.*, and transformer.* in EAGLE-1 heads, trainers leave prefixes, an older SGLang called the norms
// of the taps low, mid and high, and llama.cpp has names of its own. Canonical names are those of EAGLE-3 in
// speculators: layers.0.self_attn.q_proj.weight, fc.weight, ...
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "format/tensor_info.h"

namespace espalier {

// The source must outlive this. Immutable after construction.
class EagleNames {
 public:
  // Throws InputError if two tensors have one canonical name.
  EagleNames(const TensorSource& source, bool gguf);

  bool has(std::string_view canonical) const { return spelled_.contains(canonical); }
  // As the file spells it, or would.
  std::string spell(std::string_view canonical) const;
  // Null when there is no such tensor.
  const TensorInfo* find(std::string_view canonical) const;
  // Of EAGLE-3: tables, and tensors of the teacher that speculators leaves in its files.
  bool beside_the_weights(std::string_view spelled) const;
  // By the names: files contradict themselves about the number of layers.
  std::int64_t layers() const { return layers_; }

 private:
  const TensorSource* source_;
  bool gguf_;
  std::map<std::string, std::string, std::less<>> spelled_;  // by canonical name
  std::int64_t layers_ = 0;
};

}  // namespace espalier

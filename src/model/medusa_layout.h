// What the tensors of a file with Medusa heads are, by their names alone (docs/drafters.md lists the layouts): how many
// heads, how many blocks each, whose output matrices. Configurations are known to be wrong about all of this.
// Immutable after construction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "format/tensor_info.h"

namespace espalier {

// Whether a file means to hold Medusa heads; the constructor below says whether it does.
bool has_medusa_names(const TensorSource& source);
// Throws InputError for relatives that are not heads for a given teacher: merged Medusa-2 models (layout C) and
// low-rank heads (layout F).
void refuse_other_medusa(const TensorSource& source);

class MedusaLayout {
 public:
  // Throws InputError: no block, more heads than anyone has, an output matrix that does not follow the last block, the
  // same tensor under two names. Gaps are found by whoever reads the tensors named below.
  explicit MedusaLayout(const TensorSource& source);

  std::int64_t heads() const { return heads_; }
  std::int64_t blocks() const { return blocks_; }
  bool is_vllm() const { return vllm_; }             // layout D
  bool has_own_outputs() const { return outputs_; }  // layout A; not asked of layout D

  // Names as the file spells them, whether it has them or not.
  std::string weight(std::int64_t head, std::int64_t block) const;
  std::string bias(std::int64_t head, std::int64_t block) const;
  std::string output(std::int64_t head) const;
  std::string shared_output() const { return spelled("lm_head.weight"); }
  std::string token_map() const { return spelled("token_map"); }

 private:
  void index_names(const TensorSource& source);
  void count_blocks(const TensorSource& source);
  void check_outputs(const TensorSource& source);
  std::string block_tensor(std::int64_t head, std::int64_t block, const char* what) const;
  std::string spelled(std::string name) const;

  std::map<std::string, std::string, std::less<>> spelling_;  // name without prefix -> name in the file
  std::int64_t heads_ = 0;
  std::int64_t blocks_ = 0;
  bool vllm_ = false;
  bool outputs_ = false;
};

}  // namespace espalier

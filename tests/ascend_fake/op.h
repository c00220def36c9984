// How an operator is written: phase 1 reads its arguments through an OpCall, which judges them, and leaves a function
// that computes with an OpRun when the stream comes to it. An operator's checks and its loops stand next to each other:
//
//   ASCEND_FAKE_OP(Silu)
//   aclnnStatus aclnnSiluGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* size, aclOpExecutor**
//   executor) {
//     return phase_one({"aclnnSilu"}, size, executor, [&](OpCall& op) {
//       const Operand x = op.in(self, "self");
//       ...
//       op.runs([=](OpRun& run) { ... });
//     });
//   }
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "acl_ops.h"
#include "descriptors.h"
#include "fake.h"
#include "sums.h"
#include "values.h"

namespace ascend_fake {

// The arguments of a phase 1. Inputs and outputs are named as in the prototype.
class OpCall {
 public:
  OpCall(Fake& fake, std::string name) : fake_(fake), name_(std::move(name)) {}

  // Mandatory ones: 161001 where they are null.
  Operand in(const aclTensor* tensor, const char* what);
  Operand out(const aclTensor* tensor, const char* what);
  Operand in_out(const aclTensor* tensor, const char* what);
  // A matmul's second matrix: the one operand that may be NZ, and that may be a transposed view without a copy.
  Operand weight(const aclTensor* tensor, const char* what);
  std::optional<Operand> maybe_in(const aclTensor* tensor, const char* what);
  std::vector<Operand> list(const aclTensorList* list, const char* what);
  double scalar(const aclScalar* scalar, const char* what);
  Shape integers(const aclIntArray* array, const char* what);
  std::optional<Shape> maybe_integers(const aclIntArray* array, const char* what);
  std::string word(const char* text, const char* what);
  // An argument that the fake knows no use of.
  void unused(const void* argument, const char* what, int rule = 16);

  // E: refuses unless this holds.
  void need(bool holds, const std::string& text, int code = kInvalid) const;
  // U: noted if this is so.
  void violation(int rule, bool broken, const std::string& text) const;
  // Inputs may be equal to outputs (F15), as in the Inplace ops.
  void may_alias() { may_alias_ = true; }
  // Strided operands are no reason for a copy inside: Cast, InplaceCopy.
  void takes_strides() { takes_strides_ = true; }
  void copies_inside() { copies_inside_ = true; }
  void runs(std::function<void(class OpRun&)> run) { run_ = std::move(run); }
  void launched(std::function<void(Fake&)> action) { launched_ = std::move(action); }

  Fake& fake() const { return fake_; }
  // Closes the arguments: overlaps, counters, and the executor.
  Executor executor();

 private:
  enum class Role { kIn, kOut, kInOut, kWeight };
  struct Used {
    Operand operand;
    Role role;
  };
  Operand use(const void* tensor, const char* what, Role role);
  void check_overlaps() const;
  void count_copies();
  void count_shape() const;

  Fake& fake_;
  std::string name_;
  bool may_alias_ = false;
  bool takes_strides_ = false;
  bool copies_inside_ = false;
  std::vector<Used> used_;
  std::vector<const void*> tensors_;
  std::vector<const void*> others_;
  std::function<void(OpRun&)> run_;
  std::function<void(Fake&)> launched_;
};

// What an operator computes with. Values come dense, in the order of the view's dimensions.
class OpRun {
 public:
  OpRun(Fake& fake, Origin origin) : fake_(fake), origin_(origin) {}

  // F24: notes an element that nobody wrote.
  std::vector<float> floats(const Operand& operand);
  std::vector<int64_t> integers(const Operand& operand);
  // F34: bytes that must be 0 or 1.
  std::vector<uint8_t> truths(const Operand& operand);
  // The elements as they are, element_bytes() each.
  std::vector<uint8_t> raw(const Operand& operand);
  // Without a look at who wrote them: the operator says later which it used.
  std::vector<float> floats_of_any(const Operand& operand);
  void need_written(const Operand& operand);
  bool written(const Operand& operand);

  void store(const Operand& operand, const std::vector<float>& values);
  void store(const Operand& operand, const std::vector<int64_t>& values);
  void store(const Operand& operand, const std::vector<uint8_t>& truths);
  void store_raw(const Operand& operand, const std::vector<uint8_t>& bytes);

  // F22: an index outside [0, extent).
  void need_index(int64_t index, int64_t extent, const char* what, int code = kVectorFault) const;
  void violation(int rule, const std::string& text) { fake_.ledger.violation(rule, origin_, text); }
  uint64_t seed() const { return fake_.options.seed; }
  const AscendFakeOptions& options() const { return fake_.options; }
  // The order in which this row of so many is summed.
  SumOrder order(int64_t row, int64_t rows) const { return SumOrder::seeded(seed(), row, rows); }
  // The host bytes of an operand's storage; throws the fault of memory that is gone.
  uint8_t* storage(const Operand& operand);
  void mark_written(const Operand& operand);

 private:
  Fake& fake_;
  Origin origin_;
};

struct OpName {
  const char* name;  // of phase 2
  int since = 81;
};
using OpArguments = std::function<void(OpCall&)>;
aclnnStatus phase_one(const OpName& op, const char* call, uint64_t* size, aclOpExecutor** executor,
                      const OpArguments& arguments);
aclnnStatus phase_two(const OpName& op, void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream);

// Phase 2 of an operator, and the name under which its phase 1 is told.
#define ASCEND_FAKE_OP_SINCE(Name, profile)                                                                       \
  constexpr OpName k##Name{"aclnn" #Name, profile};                                                               \
  aclnnStatus aclnn##Name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) { \
    return phase_two(k##Name, workspace, workspaceSize, executor, stream);                                        \
  }
#define ASCEND_FAKE_OP(Name) ASCEND_FAKE_OP_SINCE(Name, 81)
// The body of a phase 1, whose last arguments are named size and executor.
#define ASCEND_FAKE_PHASE_ONE(Name, ...) \
  phase_one(k##Name, "aclnn" #Name "GetWorkspaceSize", size, executor, __VA_ARGS__)

// Where a dimension that may be negative lies; refuses one outside the rank.
int64_t dimension(const OpCall& op, int64_t dim, int64_t rank);
// A tensor seen as [outer, extent, inner] around one dimension.
struct Around {
  int64_t outer;
  int64_t extent;
  int64_t inner;
};
Around around(const Shape& dims, int64_t dim);
// NumPy's rule; refuses what does not fit.
Shape broadcast(const OpCall& op, const Shape& a, const Shape& b);
// For every element of target the element of a tensor of this shape.
std::vector<int64_t> broadcast_indices(const Shape& shape, const Shape& target);

}  // namespace ascend_fake

// Descriptors: tensors, lists, scalars, arrays, and the executors that phase 1 makes of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "acl_types.h"
#include "ledger.h"
#include "memory.h"
#include "ranges.h"

namespace ascend_fake {

struct Fake;
struct Task;

using Shape = std::vector<int64_t>;
int64_t product(const Shape& shape);
std::string text_of(const Shape& shape);

// Bits of an element; 0: the fake does not know the type.
int bits_of(aclDataType type);
const char* name_of(aclDataType type);
bool is_float(aclDataType type);
bool is_16_bit_float(aclDataType type);
bool is_index(aclDataType type);

// A view of device memory as a descriptor tells it, copied by phase 1.
struct Operand {
  uint64_t address = 0;  // of the storage
  aclDataType type = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  Shape dims{};
  Shape strides{};  // in elements
  int64_t offset = 0;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t dim(int64_t index) const { return dims[static_cast<size_t>(index < 0 ? index + rank() : index)]; }
  int64_t elements() const { return product(dims); }
  int64_t element_bytes() const { return bits_of(type) / 8; }
  bool dense() const;
  // Dense, but for its last two dimensions, which may be swapped.
  bool transposed() const;
  bool same_view(const Operand& other) const;
  // So many elements of the storage, from this one on.
  Range range(int64_t first, int64_t count) const;
  int64_t last_element() const;
  // The bytes of its elements; of a very ragged view the range from its first to its last byte.
  Ranges bytes() const;
  // Two of its elements are the same memory.
  bool overlaps_itself() const;
};
std::string text_of(const Operand& operand);

struct Tensor {
  Origin origin{};
  Operand operand{};
  Shape storage{};
  bool sound = false;  // F12 found nothing: it may be computed with
  bool of_list = false;
  int waiting = 0;  // executors between their phases
};
struct TensorList {
  Origin origin{};
  std::vector<const void*> tensors{};
  int waiting = 0;
};
struct Scalar {
  Origin origin{};
  double value = 0;
  aclDataType type = ACL_DT_UNDEFINED;
  int waiting = 0;
};
struct IntArray {
  Origin origin{};
  Shape values{};
  int waiting = 0;
};

// What phase 1 hands to phase 2. A repeatable one can be launched again.
struct Executor {
  Origin origin{};
  std::string op{};
  uint64_t workspace = 0;
  bool repeatable = false;
  bool copies_inside = false;
  int launches = 0;
  std::vector<const void*> tensors{};  // in the order of the arguments
  std::vector<const void*> others{};   // lists, scalars, arrays
  std::vector<Operand> operands{};     // of the tensors, as phase 1 saw them
  Ranges reads{};
  Ranges writes{};
  std::function<void(Fake&, const Origin&)> run{};
  std::function<void(Fake&)> launched{};  // what phase 2 changes at once, if anything
  bool converts = false;                  // a weight into NZ
};
// Phase 2 has returned, or there will be none: its descriptors may be destroyed.
void release_descriptors(Fake& fake, const Executor& executor);

}  // namespace ascend_fake

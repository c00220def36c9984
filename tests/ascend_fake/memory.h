// Device memory and pinned host memory. Device addresses are numbers no host can dereference and none is given twice;
// fresh memory holds NaN patterns and huge integers, and it is known of every byte whether someone wrote it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "acl_types.h"
#include "ledger.h"
#include "ranges.h"

namespace ascend_fake {

// A matrix [rows, columns] that TransMatmulWeight laid out in 16 x 16 blocks (i8: 16 x 32), block columns outermost.
struct NzMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  aclDataType type = ACL_DT_UNDEFINED;
  uint64_t bytes = 0;
  bool operator==(const NzMatrix&) const = default;

  int64_t block_columns() const { return type == ACL_INT8 ? 32 : 16; }
  int64_t padded_rows() const { return (rows + 15) / 16 * 16; }
  int64_t padded_columns() const { return (columns + block_columns() - 1) / block_columns() * block_columns(); }
  int64_t elements() const { return padded_rows() * padded_columns(); }
  int64_t place(int64_t row, int64_t column) const {
    const int64_t block = column / block_columns() * (padded_rows() / 16) + row / 16;
    return (block * 16 + row % 16) * block_columns() + column % block_columns();
  }
};

class Allocation {
 public:
  Allocation(uint64_t address, size_t size, size_t room, const Origin& origin);

  uint64_t address() const { return address_; }
  size_t size() const { return size_; }
  size_t room() const { return room_; }
  const Origin& origin() const { return origin_; }
  uint8_t* at(uint64_t address) { return bytes_.get() + (address - address_); }
  void mark_written(const Range& range);
  void mark_garbage(const Range& range);
  bool all_written(const Range& range) const;

  std::map<uint64_t, NzMatrix> converted;  // by address

 private:
  template <typename Change>
  void change_bits(const Range& range, Change change);

  uint64_t address_;
  size_t size_;
  size_t room_;
  Origin origin_;
  std::unique_ptr<uint8_t[]> bytes_;
  std::vector<uint64_t> written_;  // one bit per byte
  size_t unwritten_;
};

class DeviceMemory {
 public:
  static constexpr uint64_t kSpace = 0x00A0000000000000u;
  static bool is_device(uint64_t address) { return address >= kSpace && address < kSpace + (1ull << 48); }

  void* allocate(size_t size, size_t slack, const Origin& origin);
  // The live allocation whose bytes contain the range, or null.
  Allocation* containing(const Range& range);
  Allocation* at(uint64_t address) { return containing({address, address + 1}); }
  // Null: no allocation begins there. freed() then says whether one did.
  Allocation* beginning(uint64_t address);
  const Origin* freed(uint64_t address) const;
  void free(uint64_t address, const Origin& origin);
  bool written(const Ranges& ranges);
  // The converted matrix which the range touches, or null.
  const NzMatrix* converted(const Range& range);
  // Converted matrices that a range overwrites are plain bytes again.
  void overwrite(const Range& range);
  const std::map<uint64_t, Allocation>& live() const { return live_; }
  uint64_t live_bytes() const { return live_bytes_; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  void clear();

 private:
  uint64_t next_ = kSpace;
  uint64_t live_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
  std::map<uint64_t, Allocation> live_;
  std::map<uint64_t, Origin> freed_;
};

class PinnedMemory {
 public:
  void* allocate(size_t size, const Origin& origin);
  bool contains(const Range& range) const;
  // The range begins in pinned memory, whether or not it ends there.
  bool touches(const Range& range) const;
  // in_use: queued work will still look at its bytes, which then stay where they are.
  void free(uint64_t address, bool in_use);
  Range range_at(uint64_t address) const;
  struct Block {
    size_t size;
    Origin origin;
    std::unique_ptr<uint8_t[]> bytes;
  };
  const std::map<uint64_t, Block>& live() const { return live_; }
  void clear() {
    live_.clear();
    haunted_.clear();
  }

 private:
  std::map<uint64_t, Block>::const_iterator before(uint64_t address) const;
  std::map<uint64_t, Block> live_;
  std::vector<Block> haunted_;
};

}  // namespace ascend_fake

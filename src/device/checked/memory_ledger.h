// What the checked device knows about memory: where its buffers are, which of their bytes were written, which were
// freed. Every buffer lies between guard zones; fresh, discarded and freed bytes hold poison. The memory itself is only
// reached through upload and download of the inner device, so it need not be addressable from here.
//
//   | guard 64 | payload | slack (Ascend: up to the next 32 bytes, and 32 more) | guard 64 |
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/checked/rule_violation.h"
#include "device/checked/written_map.h"
#include "device/device.h"

namespace espalier {

// Bytes of device memory, [begin, end).
struct ByteRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

// The bytes of the elements of a view, by ascending address: one range if it is dense, else one per row.
std::vector<ByteRange> ranges_of(const ConstView& view);

class MemoryLedger {
 public:
  struct Options {
    bool slack = false;                // keep the guard behind the slack that 32-byte kernels may touch
    std::size_t quarantine_bytes = 0;  // freed memory that is kept from reuse, so that late readers are caught
    bool finite = false;               // poison is a large number instead of NaN: a leak shows as a wrong value
  };

  class Region {
   public:
    Region(std::unique_ptr<Buffer> inner, std::size_t size, std::size_t slack);

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    bool live() const { return live_; }
    bool contains(ByteRange range) const { return range.begin >= data_ && range.end <= data_ + size_; }
    bool is_written(ByteRange range) const { return first_unwritten(range) == range.end; }
    const std::byte* first_unwritten(ByteRange range) const;
    void mark_written(ByteRange range);

   private:
    friend class MemoryLedger;
    std::size_t offset(const std::byte* address) const { return static_cast<std::size_t>(address - data_); }

    std::unique_ptr<Buffer> inner_;
    std::byte* data_;
    std::size_t size_;
    std::byte* back_guard_;
    WrittenMap written_;
    bool live_ = true;
  };

  MemoryLedger(Device& inner, Options options) : inner_(&inner), options_(options) {}

  Region& allocate(std::size_t bytes);
  // What is found wrong is thrown by the next call of throw_pending(): a destructor frees.
  void release(Region& region) noexcept;
  // After this the inner device is no longer used; buffers that outlive it only give back their memory.
  void close() noexcept;

  // The live buffer that holds all of the view. Throws R8.
  Region& region_of(const CallSite& site, const ConstView& view);
  // Poison again, as if nobody had written these bytes.
  void forget(Region& region, ByteRange range);
  // Throws R3 when a byte of a guard zone has changed.
  void check_guards(const CallSite& site, const Region& region) const;
  void check_all_guards(std::string_view op) const;
  void throw_pending();

  std::vector<std::byte> read(ByteRange range) const;
  // The elements of a view, row by row.
  template <typename T>
  std::vector<T> read(const ConstView& view) const {
    std::vector<T> values(static_cast<std::size_t>(view.elements()));
    read_into(view, std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  void read_into(const ConstView& view, std::span<std::byte> to) const;
  void fill(std::byte* begin, std::size_t bytes, std::span<const std::byte> pattern);
  void retire(Region& region);
  void evict();

  Device* inner_;
  Options options_;
  std::map<const std::byte*, Region> regions_;  // by address of the payload; freed ones while in quarantine
  std::deque<const std::byte*> quarantine_;     // oldest first
  std::size_t quarantined_bytes_ = 0;
  std::exception_ptr pending_;
};

}  // namespace espalier

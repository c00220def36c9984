// Moves bytes between host and NPU in stream order, through pinned memory: copies from elsewhere would wait. The pinned
// memory is a ring of regions, each of which is filled with pieces until one does not fit. An event then marks the end
// of its copies, and only whoever wants that region again waits for it.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>

#include "device/ascend/card.h"
#include "device/device.h"

namespace espalier::ascend {

class Staging {
 public:
  // bytes: of all regions together
  Staging(std::shared_ptr<Card> card, std::size_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // `from` may be reused at once.
  void upload(std::span<const std::byte> from, std::byte* to);
  // All parts in one synchronisation; those that are larger than the pinned memory wait for regions as well.
  void download(std::span<const Download> parts);

 private:
  static constexpr std::size_t kRegions = 4;

  class Pinned {
   public:
    Pinned(const Api& api, std::size_t bytes);
    ~Pinned();
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    std::byte* data() const { return data_; }

   private:
    const Api& api_;
    std::byte* data_ = nullptr;
  };
  class Region {
   public:
    explicit Region(const Api& api);
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    AclEvent event() const { return event_; }

    bool under_way = false;  // copies that use it are, unless its event has been waited for

   private:
    const Api& api_;
    AclEvent event_ = nullptr;
  };
  // Of a download: bytes of a region, and where they belong.
  struct Piece {
    std::size_t region;
    const std::byte* pinned;
    std::span<std::byte> to;
  };

  std::size_t piece_of(std::size_t bytes) const;
  bool has_room(std::size_t bytes) const;
  std::byte* reserve(std::size_t bytes);
  void next_region();
  void all_arrived();

  std::shared_ptr<Card> card_;
  std::size_t region_bytes_;
  Pinned pinned_;
  std::array<Region, kRegions> regions_;
  std::size_t current_ = 0;  // the region that is being filled
  std::size_t used_ = 0;     // of it
};

}  // namespace espalier::ascend

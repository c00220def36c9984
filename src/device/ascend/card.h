// One NPU as this process uses it: a context, a stream, and what is known of the chip. Everything that has memory there
// shares it (the device, its buffers, weights and recordings), so that whatever goes last closes it. For one thread at
// a time, but not always the same one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "device/ascend/acl.h"
#include "device/ascend/opened_npu.h"

namespace espalier::ascend {

// Which operators and types there are.
struct Chip {
  std::string name = {};  // "Ascend910B4"
  int acl_major = 0;      // the version of the runtime; 0: it does not tell
  int acl_minor = 0;
  bool has_bf16 = true;         // not on a 310P
  std::int8_t f32_product = 0;  // how a matrix product of f32 is to be computed
};

// A library that is not CANN's says so by a symbol of its own; devices then carry it in their names.
bool is_fake(const Api& api);

// How many NPUs there are. Throws DeviceError where there is none, or the driver does not tell.
int count_npus(const Api& api);

struct CardOptions {
  int index = 0;
  std::int32_t timeout_ms = 600'000;  // of a synchronisation
};

class Card {
 public:
  // Throws DeviceError.
  Card(std::shared_ptr<const Api> api, const CardOptions& options);
  ~Card();
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  const Api& api() const { return *api_; }
  const Chip& chip() const { return chip_; }
  AclStream stream() const { return stream_; }

  // Contexts belong to threads: the calling one gets this card's. Before the first call of each op.
  void enter() const;
  // Something was put into the stream.
  void note_work() { busy_ = true; }
  // Waits for everything in the stream; throws what went wrong there.
  void synchronise();
  // Marks how far the stream has come by now, and waits until it has come there.
  void record(AclEvent event);
  void wait_for(AclEvent event);
  // For destructors: the same, where there is something to wait for, and whatever comes of it.
  void settle() noexcept;

  // While a step is captured, its memory must not grow.
  bool capturing() const { return capturing_; }
  void set_capturing(bool capturing) { capturing_ = capturing; }

  // Bytes free and in all, of whatever memory the card has; zeros where it does not tell.
  std::pair<std::size_t, std::size_t> memory() const;

 private:
  struct Stream {
    explicit Stream(const Api& api);
    ~Stream();
    operator AclStream() const { return handle; }
    const Api& api;
    AclStream handle = nullptr;
  };

  std::shared_ptr<const Api> api_;
  CardOptions options_;
  OpenedNpu npu_;
  Context context_;
  Stream stream_;
  Chip chip_;
  bool busy_ = false;
  bool failed_ = false;  // the last synchronisation
  bool capturing_ = false;
};

}  // namespace espalier::ascend

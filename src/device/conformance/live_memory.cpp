#include "device/conformance/live_memory.h"

#include <utility>

#include "base/error.h"

namespace espalier {

class LiveMemory::WatchedBuffer final : public Buffer {
 public:
  WatchedBuffer(std::shared_ptr<LiveMemory> live, std::unique_ptr<Buffer> inner)
      : live_(std::move(live)), inner_(std::move(inner)) {
    live_->buffers_[inner_->data()] = {inner_->size(), live_->next_++};
  }
  ~WatchedBuffer() override { live_->buffers_.erase(inner_->data()); }
  WatchedBuffer(const WatchedBuffer&) = delete;
  WatchedBuffer& operator=(const WatchedBuffer&) = delete;
  std::byte* data() override { return inner_->data(); }
  std::size_t size() const override { return inner_->size(); }

 private:
  std::shared_ptr<LiveMemory> live_;
  std::unique_ptr<Buffer> inner_;
};

class LiveMemory::WatchedWeight final : public Weight {
 public:
  WatchedWeight(std::shared_ptr<LiveMemory> live, std::unique_ptr<const Weight> inner)
      : Weight(inner->outputs(), inner->inputs()), live_(std::move(live)), inner_(std::move(inner)) {
    live_->weights_[this] = live_->next_++;
  }
  ~WatchedWeight() override { live_->weights_.erase(this); }
  WatchedWeight(const WatchedWeight&) = delete;
  WatchedWeight& operator=(const WatchedWeight&) = delete;
  const Weight& inner() const { return *inner_; }

 private:
  std::shared_ptr<LiveMemory> live_;
  std::unique_ptr<const Weight> inner_;
};

std::unique_ptr<Buffer> LiveMemory::watch(const std::shared_ptr<LiveMemory>& live, std::unique_ptr<Buffer> buffer) {
  return std::make_unique<WatchedBuffer>(live, std::move(buffer));
}

std::unique_ptr<const Weight> LiveMemory::watch(const std::shared_ptr<LiveMemory>& live,
                                                std::unique_ptr<const Weight> weight) {
  return std::make_unique<WatchedWeight>(live, std::move(weight));
}

std::optional<LiveMemory::Number> LiveMemory::buffer_of(const ConstView& view) const {
  auto found = buffers_.upper_bound(view.data());
  if (found == buffers_.begin()) return std::nullopt;
  const auto& [begin, buffer] = *--found;
  if (view.data() + view.bytes_spanned() > begin + buffer.bytes) return std::nullopt;
  return buffer.number;
}

std::optional<LiveMemory::Number> LiveMemory::number_of(const Weight* weight) const {
  const auto found = weights_.find(weight);
  return found == weights_.end() ? std::nullopt : std::optional(found->second);
}

const Weight& LiveMemory::inner(const Weight& weight) {
  const auto* watched = dynamic_cast<const WatchedWeight*>(&weight);
  check(watched != nullptr, "a weight that this device did not load");
  return watched->inner();
}

}  // namespace espalier

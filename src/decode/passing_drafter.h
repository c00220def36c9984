// A drafter that passes everything on to another one: the beginning of drafters that look at, or change, one thing.
// What drafters come to say of themselves must be passed on here. With it no round stays on the device: there it would
// be passed by.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "decode/drafter.h"

namespace espalier {

class PassingDrafter : public Drafter {
 public:
  explicit PassingDrafter(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  FeatureWishes wishes() const override { return inner_->wishes(); }
  int max_depth() const override { return inner_->max_depth(); }
  bool follows_text() const override { return inner_->follows_text(); }
  bool needs_every_text() const override { return inner_->needs_every_text(); }
  std::int64_t round_rows() const override { return inner_->round_rows(); }
  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) override {
    return inner_->open(sequence, prompt);
  }
  void all_told() override { inner_->all_told(); }
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override { return inner_->expand(jobs); }
  bool guesses_on_host() const override { return inner_->guesses_on_host(); }

 protected:
  Drafter& inner() const { return *inner_; }

 private:
  std::unique_ptr<Drafter> inner_;
};

}  // namespace espalier

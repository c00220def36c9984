#include "device/conformance/recording_device.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/conformance/live_memory.h"

namespace espalier {
namespace {

// One call of an op, with everything that its caller gave it.
struct RecordedOp {
  std::string_view name;
  std::vector<ConstView> views;  // in the order of the call, those of lists one after the other
  std::vector<const Weight*> weights = {};
  std::vector<float> numbers = {};
  std::function<void(Device&)> call = {};  // on the inner device
  std::optional<RoundOp> round = {};

  bool same_call(const RecordedOp& other) const {
    return name == other.name && views == other.views && weights == other.weights && numbers == other.numbers &&
           round == other.round;
  }
};

// An op and whose memory it uses, by number.
struct PlacedOp {
  RecordedOp op;
  std::vector<LiveMemory::Number> buffers, weights;
};

using Recording = std::vector<PlacedOp>;

class RecordedSteps final : public Recordings {
 public:
  RecordedSteps(const Device& owner, std::unique_ptr<Recordings> inner) : owner_(&owner), inner_(std::move(inner)) {}

  const Device& owner() const { return *owner_; }
  Recordings& inner() { return *inner_; }
  std::map<StepKey, Recording>& by_key() { return by_key_; }

 private:
  const Device* owner_;
  std::unique_ptr<Recordings> inner_;
  std::map<StepKey, Recording> by_key_;
};

void append_views(std::vector<ConstView>& views, const KvViews& kv) {
  views.insert(views.end(), {kv.k, kv.v});
}

std::vector<ConstView> views_of_attention(const ConstView& q, const KvViews& kv, const RowTables& rows,
                                          const View& out) {
  std::vector<ConstView> views = {q};
  append_views(views, kv);
  views.insert(views.end(), {rows.token, rows.position, rows.slot, rows.sequence, rows.begin, rows.end,
                             rows.ancestor_count, rows.ancestors, rows.blocks, rows.mask, out});
  return views;
}

std::string described(const RecordedOp& op) {
  std::string text(op.name);
  for (const ConstView& view : op.views) text += fmt::format(" {}", view.empty() ? "-" : view.describe());
  for (const float number : op.numbers) text += fmt::format(" {}", number);
  return text;
}

[[noreturn]] void refuse(std::string_view when, const RecordedOp& op, std::string_view why) {
  throw std::logic_error(fmt::format("{}: {}: {}", when, described(op), why));
}

class RecorderOfSteps final : public RecordingDevice {
 public:
  RecorderOfSteps(std::unique_ptr<Device> inner, Replay replay)
      : RecordingDevice(*inner),
        owned_(std::move(inner)),
        replay_(replay),
        name_("recording(" + std::string(owned_->name()) + ")") {}

  std::string_view name() const override { return name_; }
  bool hears_discards() const override { return true; }  // to refuse them inside a step
  const RecordingCounts& counts() const override { return counts_; }

 private:
  // What is called of this device now becomes a list, and nothing is computed.
  std::vector<RecordedOp> listed(const std::function<void()>& ops) {
    struct Leave {
      std::optional<std::vector<RecordedOp>>& list;
      ~Leave() { list.reset(); }
    } leave{listing_};
    listing_.emplace();
    ops();
    return std::move(*listing_);
  }

  void perform(RecordedOp op) {
    if (listing_)
      listing_->push_back(std::move(op));
    else
      op.call(inner());
  }

  // --- steps --------------------------------------------------------------------------------------------------------
  std::unique_ptr<Recordings> do_make_recordings() override {
    refuse_in_step("make_recordings");
    return std::make_unique<RecordedSteps>(*this, inner().make_recordings());
  }

  void do_step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops) override {
    refuse_in_step("step");
    auto* steps = dynamic_cast<RecordedSteps*>(&recordings);
    check(steps != nullptr && &steps->owner() == this, "step: recordings of another device");
    const auto known = steps->by_key().find(key);
    if (known == steps->by_key().end()) {
      const Recording& fresh = steps->by_key().emplace(key, placed(listed(ops))).first->second;
      ++counts_.recorded;
      return play(*steps, key, fresh);
    }
    check_alive(known->second);
    if (replay_ == Replay::compared) compare(known->second, listed(ops));
    ++counts_.replayed;
    play(*steps, key, known->second);
  }

  void play(RecordedSteps& steps, const StepKey& key, const Recording& recording) {
    inner().step(steps.inner(), key, [&] {
      for (const PlacedOp& placed : recording) placed.op.call(inner());
    });
  }

  Recording placed(std::vector<RecordedOp> ops) const {
    Recording recording;
    for (RecordedOp& op : ops) {
      PlacedOp& placed = recording.emplace_back();
      for (const ConstView& view : op.views) placed.buffers.push_back(buffer_of(op, view));
      for (const Weight* weight : op.weights) placed.weights.push_back(number_of(op, weight));
      placed.op = std::move(op);
    }
    return recording;
  }

  LiveMemory::Number buffer_of(const RecordedOp& op, const ConstView& view) const {
    if (view.empty()) return 0;
    const auto number = live_->buffer_of(view);
    if (!number) refuse("step", op, fmt::format("{} is no memory of this device", view));
    return *number;
  }
  LiveMemory::Number number_of(const RecordedOp& op, const Weight* weight) const {
    const auto number = live_->number_of(weight);
    if (!number) refuse("step", op, "a weight that this device did not load");
    return *number;
  }

  void check_alive(const Recording& recording) const {
    for (const auto& [op, buffers, weights] : recording) {
      for (std::size_t i = 0; i < buffers.size(); ++i)
        if (!op.views[i].empty() && live_->buffer_of(op.views[i]) != buffers[i])
          refuse("replay", op, fmt::format("{} lies in memory that is gone", op.views[i]));
      for (std::size_t i = 0; i < weights.size(); ++i)
        if (live_->number_of(op.weights[i]) != weights[i]) refuse("replay", op, "a weight that is gone");
    }
  }

  static void compare(const Recording& recording, const std::vector<RecordedOp>& now) {
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (i >= recording.size()) refuse("replay", now[i], "was not recorded");
      if (!now[i].same_call(recording[i].op))
        refuse("replay", now[i], fmt::format("recorded was {}, or the same elsewhere", described(recording[i].op)));
    }
    if (now.size() < recording.size()) refuse("replay", recording[now.size()].op, "was recorded, and is missing now");
  }

  // --- memory -------------------------------------------------------------------------------------------------------
  void refuse_in_step(std::string_view call) const { check(!listing_, "{} inside a step", call); }
  void before(std::string_view call) override { refuse_in_step(call); }

  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override {
    refuse_in_step("allocate");
    return LiveMemory::watch(live_, inner().allocate(bytes));
  }
  void do_discard(View memory) override {
    refuse_in_step("discard");
    inner().discard(memory);
  }
  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    refuse_in_step("load_weight");
    return LiveMemory::watch(live_, inner().load_weight(parts));
  }

  // --- ops ----------------------------------------------------------------------------------------------------------
  void do_embed(const Weight& table, ConstView token, View y) override {
    perform({"embed", {token, y}, {&table}, {}, [=, &table](Device& device) {
               device.embed(LiveMemory::inner(table), token, y);
             }});
  }
  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override {
    perform({"rms_norm", {x, w, y}, {}, {eps}, [=](Device& device) { device.rms_norm(x, w, eps, y); }});
  }
  void do_linear(ConstView x, std::span<const Projection> projections) override {
    RecordedOp op{.name = "linear", .views = {x}};
    std::vector<Projection> all(projections.begin(), projections.end());
    for (Projection& projection : all) {
      op.views.insert(op.views.end(), {projection.bias, projection.y});
      op.weights.push_back(projection.weight);
    }
    op.call = [x, all](Device& device) {
      std::vector<Projection> inner = all;
      for (Projection& projection : inner) projection.weight = &LiveMemory::inner(*projection.weight);
      device.linear(x, inner);
    };
    perform(std::move(op));
  }
  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    perform(
        {"rope", {x, position, cosine, sine}, {}, {}, [=](Device& device) { device.rope(x, position, cosine, sine); }});
  }
  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override {
    perform({"kv_write", {k, v, slot, kv.k, kv.v}, {}, {}, [=](Device& device) { device.kv_write(k, v, slot, kv); }});
  }
  void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) override {
    RecordedOp op{.name = "kv_copy", .views = {from, to}};
    const std::vector<KvViews> all(layers.begin(), layers.end());
    for (const KvViews& kv : all) append_views(op.views, kv);
    op.call = [=](Device& device) { device.kv_copy(all, from, to); };
    perform(std::move(op));
  }
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    perform({"attention", views_of_attention(q, kv, rows, out), {}, {scale}, [=](Device& device) {
               device.attention(q, kv, rows, scale, out);
             }});
  }
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    perform({"attention_eager", views_of_attention(q, kv, rows, out), {}, {scale}, [=](Device& device) {
               device.attention_eager(q, kv, rows, scale, out);
             }});
  }
  void do_swiglu(ConstView x, View y) override {
    perform({"swiglu", {x, y}, {}, {}, [=](Device& device) { device.swiglu(x, y); }});
  }
  void do_silu(View x) override {
    perform({"silu", {x}, {}, {}, [=](Device& device) { device.silu(x); }});
  }
  void do_add(View x, ConstView y) override {
    perform({"add", {x, y}, {}, {}, [=](Device& device) { device.add(x, y); }});
  }
  void do_gather_rows(ConstView x, ConstView index, View y) override {
    perform({"gather_rows", {x, index, y}, {}, {}, [=](Device& device) { device.gather_rows(x, index, y); }});
  }
  void do_argmax(ConstView x, View id) override {
    perform({"argmax", {x, id}, {}, {}, [=](Device& device) { device.argmax(x, id); }});
  }
  void do_top_k(ConstView x, View value, View id) override {
    perform({"top_k", {x, value, id}, {}, {}, [=](Device& device) { device.top_k(x, value, id); }});
  }
  void do_log_sum_exp(ConstView x, float scale, View y) override {
    perform({"log_sum_exp", {x, y}, {}, {scale}, [=](Device& device) { device.log_sum_exp(x, scale, y); }});
  }

  void do_round(const RoundOp& round) override {
    RecordedOp op{.name = espalier::name(round), .views = {}, .call = {}, .round = round};
    const auto note = [&](std::string_view, std::string_view, const ConstView& view, Access) {
      op.views.push_back(view);
    };
    std::visit([&](const auto& one) { one.operands(one, note); }, round);
    op.call = [round](Device& device) { device.round_ops()->run(round); };
    perform(std::move(op));
  }

  std::unique_ptr<Device> owned_;
  Replay replay_;
  std::string name_;
  RecordingCounts counts_;
  std::shared_ptr<LiveMemory> live_ = std::make_shared<LiveMemory>();
  std::optional<std::vector<RecordedOp>> listing_;  // inside a step
};

}  // namespace

std::unique_ptr<RecordingDevice> make_recording_device(std::unique_ptr<Device> inner, Replay replay) {
  return std::make_unique<RecorderOfSteps>(std::move(inner), replay);
}

}  // namespace espalier

// The ops of device.h and round_ops.h as kernels in a stream. Inside of a step neighbours that fit are one kernel: an
// op and the quantising of its output for the linear behind it, a linear and the addition of its output, rotations and
// the write of keys and values. For that an op may wait here until the next one comes. What an op stores, it stores all
// the same, with the same roundings, so nobody can tell the difference but by the clock.
//
// Outside of a step nothing waits: the caller may give back an op's memory as soon as it was called.
#pragma once

#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "device/cuda/cluster_ops.h"
#include "device/cuda/kernels.h"
#include "device/cuda/memory.h"
#include "device/device.h"
#include "device/round_ops.h"

namespace espalier::cuda {

class OpQueue {
 public:
  OpQueue(Queue queue, bool fused) : queue_(queue), fused_(fused) {}

  // Runs `ops`, which call the ops below; when it returns, all of them are in the stream.
  void step(const std::function<void()>& ops);

  void embed(const Weight& table, ConstView token, View y);
  void rms_norm(ConstView x, ConstView w, float eps, View y);
  void linear(ConstView x, std::span<const Projection> projections);
  void rope(View x, ConstView position, ConstView cosine, ConstView sine);
  void kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv);
  void kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to);
  void attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out);
  // One kernel for both: here `eager` says that the mask decides which keys a row sees (docs/modes.md).
  void attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
    attention(q, kv, rows, scale, out);
  }
  void swiglu(ConstView x, View y);
  void silu(View x);
  void add(View x, ConstView y);
  void gather_rows(ConstView x, ConstView index, View y);
  void argmax(ConstView x, View id);
  void top_k(ConstView x, View value, View id);
  void log_sum_exp(ConstView x, float scale, View y);
  void round(const RoundOp& op);

 private:
  struct Nothing {};
  struct Norm {
    ConstView x, w;
    float eps;
    View y;
  };
  struct Swiglu {
    ConstView x;
    View y;
  };
  struct Attention {
    AttentionCall call;
    AttentionScratch scratch;
    View out;
  };
  // What kernels of linears read in the place of x, made once for all of its parts; null: none of them wants it.
  struct RowForms {
    std::byte *quantised = nullptr, *bf16_terms = nullptr, *f16_terms = nullptr;
    bool operator==(const RowForms&) const = default;
  };
  struct Linear {
    std::vector<LinearPart> parts;
    ConstView x;
    RowForms forms;
    View y;  // of its only projection; empty: there are several
  };
  struct Rotations {
    struct One {
      View x;
      ConstView position, cosine, sine;
    };
    std::vector<One> all;
  };
  using Waiting = std::variant<Nothing, Norm, Swiglu, Attention, Linear, Rotations>;

  // Puts what waits into the stream.
  void flush();
  // `op` waits for the one behind it, if there can be one.
  void wait_with(Waiting op);
  // Where the forms of x lie that these parts want.
  RowForms forms_for(ConstView x, std::span<const LinearPart> parts);
  // Makes them: the op that makes x makes one of them too where it waits, and where a linear waits that reads the same,
  // they are there.
  void make_forms(ConstView x, RowForms forms);
  // Launches what waits with one of the forms, which it then no longer lacks; or nothing.
  void make_with_what_waits(ConstView x, RowForms& forms);
  void launch_linear(const Linear& linear);
  // Parts of one type, in as few launches as they fit in.
  void launch_parts(std::span<const LinearPart> parts, const Linear& linear);
  static void launch(Queue queue, const Rotations::One& rotation);
  VocabularyScratch scratch_for(ConstRows x, VocabularyRanks wanted);
  // Those of round_ops.h (round_queue.cpp).
  void launch(const RankGuesses& op);
  void launch(const GrowLevel& op);
  void launch(const ChooseRows& op);
  void launch(const PlaceRows& op);
  void launch(const ChooseTokens& op);
  void launch(const WalkTrees& op);
  void launch(const ListMoves& op);
  void launch(const CatchUp& op);

  Queue queue_;
  HeldOps held_;
  bool fused_;
  bool in_step_ = false;
  Waiting waiting_;
  bool behind_linear_ = false;  // the rotations that wait are
  ConstView just_written_;      // slots, where nothing has come behind the rotations, and the write, that were
  Scratch tiles_, counts_, quantised_, bf16_terms_, f16_terms_, slots_, vocabulary_;
};

}  // namespace espalier::cuda

#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ascend_fake {
namespace {

constexpr int64_t kIgnoredFrom = 512;  // a mask of one row is not looked at from this key on (vllm-ascend 15503)

// Whether the mask of this call is one of those.
bool is_ignored(const OpRun& run, const Attention& a) {
  const AscendFakeOptions& options = run.options();
  return a.rows <= options.mask_ignored_rows &&
         (options.mask_ignored_type == 0 || options.mask_ignored_type == a.keys[0].type);
}

// Keys and values of one sequence, [key, kv head, width].
struct SequenceKeys {
  int64_t length = 0;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<bool> written;              // by key
  std::vector<std::vector<bool>> finite;  // by kv head and key
};

void append_keys(OpRun& run, SequenceKeys& context, const Operand& k, const Operand& v, int64_t keys) {
  for (const auto& [operand, target] : {std::pair(&k, &context.k), std::pair(&v, &context.v)}) {
    const std::vector<float> values = run.floats_of_any(*operand);
    target->insert(target->end(), values.begin(), values.end());
  }
  const bool all = run.written(k) && run.written(v);
  for (int64_t key = 0; key < keys; ++key) {
    Operand one_k = k;
    Operand one_v = v;
    for (Operand* one : {&one_k, &one_v}) {
      one->offset += key * one->strides[0];
      one->dims[0] = 1;
    }
    context.written.push_back(all || (run.written(one_k) && run.written(one_v)));
  }
}

// Rows of one block of the paged cache, as [keys, G * D].
Operand block_rows(const Operand& cache, int64_t block, int64_t keys) {
  Operand rows = cache;
  rows.offset += block * cache.strides[0];
  rows.dims = {keys, cache.dims[2]};
  rows.strides = {cache.strides[1], cache.strides[2]};
  return rows;
}

// Keys of one sequence of an unpaged operand, as [keys, G, D].
Operand sequence_rows(const Attention& a, const std::vector<Operand>& operands, int64_t sequence, int64_t keys) {
  const bool own = operands.size() > 1;
  const Operand& whole = operands[own ? static_cast<size_t>(sequence) : 0];
  Operand rows = whole;
  rows.offset += (own ? 0 : sequence) * whole.strides[0];
  rows.dims = {keys, a.kv_heads, a.width};
  if (a.layout == Layout::kBsnd) rows.strides = {whole.strides[1], whole.strides[2], whole.strides[3]};
  if (a.layout == Layout::kBnsd) rows.strides = {whole.strides[2], whole.strides[1], whole.strides[3]};
  if (a.layout == Layout::kBsh) rows.strides = {whole.strides[1], a.width, 1};
  return rows;
}

// R11: block ids are valid in every column, also behind the end.
std::vector<int64_t> blocks_of(OpRun& run, const Attention& a, int64_t sequence) {
  Operand row = *a.table;
  row.offset += sequence * row.strides[0];
  row.dims[0] = 1;
  std::vector<int64_t> blocks = run.integers(row);
  for (const int64_t block : blocks) run.need_index(block, a.keys[0].dim(0), "block", kCoreFault);
  return blocks;
}

void note_finite(const Attention& a, SequenceKeys& context) {
  context.finite.resize(static_cast<size_t>(a.kv_heads));
  for (int64_t g = 0; g < a.kv_heads; ++g) {
    for (int64_t key = 0; key < context.length; ++key) {
      const int64_t first = (key * a.kv_heads + g) * a.width;
      float probe = 0;
      for (int64_t d = first; d < first + a.width; ++d)
        probe += context.k[static_cast<size_t>(d)] * 0 + context.v[static_cast<size_t>(d)] * 0;
      context.finite[static_cast<size_t>(g)].push_back(probe == 0);
    }
  }
}

SequenceKeys context_of(OpRun& run, const Attention& a, int64_t sequence) {
  SequenceKeys context;
  context.length = a.lengths[static_cast<size_t>(sequence)];
  if (a.table) {
    const std::vector<int64_t> blocks = blocks_of(run, a, sequence);
    for (int64_t first = 0; first < context.length; first += a.block) {
      const int64_t keys = std::min(a.block, context.length - first);
      const int64_t block = blocks[static_cast<size_t>(first / a.block)];
      append_keys(run, context, block_rows(a.keys[0], block, keys), block_rows(a.values[0], block, keys), keys);
    }
  } else {
    append_keys(run, context, sequence_rows(a, a.keys, sequence, context.length),
                sequence_rows(a, a.values, sequence, context.length), context.length);
  }
  note_finite(a, context);
  return context;
}

class SequenceAttention {
 public:
  SequenceAttention(OpRun& run, const Attention& a, const SequenceKeys& context)
      : run_(run), a_(a), context_(context), masked_keys_(is_ignored(run, a) ? kIgnoredFrom : context.length) {}

  // The keys that this row sees, as the card reads the mask.
  void see(const uint8_t* mask) {
    visible_.clear();
    hidden_.clear();
    for (int64_t key = 0; key < context_.length; ++key) {
      (mask == nullptr || key >= masked_keys_ || mask[key] == 0 ? visible_ : hidden_).push_back(key);
    }
    for (const int64_t key : visible_) {
      if (context_.written[static_cast<size_t>(key)]) continue;
      run_.violation(24, "reads key " + std::to_string(key) + ", which nobody wrote");
      break;
    }
    if (visible_.empty()) run_.violation(42, "a row whose keys are all hidden");
  }

  // One head of one row; its log-sum-exp.
  float head(int64_t row, int64_t head, const float* q, std::span<float> out) {
    const int64_t g = head / (a_.heads / a_.kv_heads);
    const auto& finite = context_.finite[static_cast<size_t>(g)];
    if (!std::all_of(hidden_.begin(), hidden_.end(), [&](int64_t key) { return finite[static_cast<size_t>(key)]; })) {
      std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());  // 0 * NaN
      return std::numeric_limits<float>::quiet_NaN();
    }
    const SumOrder order = run_.order(row, a_.rows);
    weigh(g, q, order);
    std::vector<const float*> rows;
    for (const int64_t key : counted()) rows.push_back(vector_at(context_.v, key, g));
    weighted_rows(weights_, rows, order, out);
    const float total = sum(weights_, order);
    for (float& value : out) value /= total;
    return largest_ + std::log(total);
  }

 private:
  const std::vector<int64_t>& counted() const { return visible_.empty() ? hidden_ : visible_; }

  const float* vector_at(const std::vector<float>& values, int64_t key, int64_t g) const {
    return values.data() + (key * a_.kv_heads + g) * a_.width;
  }

  // weights_ = exp(scale * q.k - largest); a fully hidden row weighs all keys alike.
  void weigh(int64_t g, const float* q, const SumOrder& order) {
    const size_t width = static_cast<size_t>(a_.width);
    weights_.clear();
    for (const int64_t key : counted()) {
      const float score = static_cast<float>(a_.scale) * dot({q, width}, {vector_at(context_.k, key, g), width}, order);
      weights_.push_back(visible_.empty() ? 0.0f : score);
    }
    largest_ = *std::max_element(weights_.begin(), weights_.end());
    for (float& weight : weights_) weight = std::exp(weight - largest_);
  }

  OpRun& run_;
  const Attention& a_;
  const SequenceKeys& context_;
  int64_t masked_keys_;  // from here on the mask is not looked at
  std::vector<int64_t> visible_;
  std::vector<int64_t> hidden_;
  std::vector<float> weights_;
  float largest_ = 0;
};

// Where head h of row r of sequence b begins in q and out.
size_t place_of(const Attention& a, int64_t b, int64_t r, int64_t h) {
  const int64_t vector = a.layout == Layout::kBnsd ? (b * a.heads + h) * a.rows + r : (b * a.rows + r) * a.heads + h;
  return static_cast<size_t>(vector * a.width);
}

}  // namespace

int64_t Attention::longest() const {
  return *std::max_element(lengths.begin(), lengths.end());
}

void run_attention(OpRun& run, const Attention& a) {
  const std::vector<float> q = run.floats(a.q);
  const std::vector<uint8_t> mask = a.mask ? run.truths(*a.mask) : std::vector<uint8_t>();
  std::vector<float> out(q.size());
  std::vector<float> lse(static_cast<size_t>(a.batch * a.heads * a.rows));
  for (int64_t b = 0; b < a.batch; ++b) {
    const SequenceKeys context = context_of(run, a, b);
    SequenceAttention sequence(run, a, context);
    for (int64_t r = 0; r < a.rows; ++r) {
      const int64_t mask_row = a.mask ? (a.mask->dim(0) == 1 ? 0 : b) * a.mask->dim(2) + r : 0;
      sequence.see(a.mask ? mask.data() + mask_row * a.mask->dim(3) : nullptr);
      for (int64_t h = 0; h < a.heads; ++h) {
        const size_t place = place_of(a, b, r, h);
        lse[static_cast<size_t>((b * a.heads + h) * a.rows + r)] =
            sequence.head(r, h, q.data() + place, std::span(out).subspan(place, static_cast<size_t>(a.width)));
      }
    }
  }
  run.store(a.out, out);
  if (a.lse) run.store(*a.lse, lse);
}

}  // namespace ascend_fake

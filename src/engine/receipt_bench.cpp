#include "engine/receipt_bench.h"

#include <fmt/format.h>

#include "base/error.h"

namespace espalier {

std::string ReceiptBench::open_for(const FoundReceipt& found) {
  const ModelFingerprint& fingerprint = found.receipt->origin.fingerprint;
  const std::optional<WeightMode> weights = parse_weight_mode(fingerprint.weights);
  if (!weights) return fmt::format("{}: weights: expected file, f32 or q8_0, got {}", found.where, fingerprint.weights);
  if (asked_.kv_type && fingerprint.kv != name(*asked_.kv_type))
    return fmt::format("{}: kv is {}, expected {}, as --kv says", found.where, fingerprint.kv, name(*asked_.kv_type));
  const WeightMode wanted = asked_.weights.value_or(*weights);
  try {
    if (!verifier_ || engine_->weights != wanted) open(wanted);
  } catch (const InputError& error) {
    if (asked_.weights || wanted == WeightMode::stored) throw;
    return fmt::format("{}: weights {}: {}", found.where, fingerprint.weights, error.what());
  }
  return "";
}

void ReceiptBench::open(WeightMode weights) {
  EngineOptions options = asked_;
  options.weights = weights;
  verifier_.reset();
  engine_.reset();
  engine_.emplace(open_engine(options, listener_));
  verifier_.emplace(*engine_);
}

}  // namespace espalier

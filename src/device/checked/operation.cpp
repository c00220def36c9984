#include "device/checked/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace espalier {
namespace {

constexpr std::ptrdiff_t kMargin = 64;  // bytes next to an output that are watched

bool overlap(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].end <= b[j].begin) {
      ++i;
    } else if (b[j].end <= a[i].begin) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace

Operation::Operation(MemoryLedger& ledger, const CheckedOptions& options, CheckedCounts& counts, std::string_view name)
    : ledger_(ledger), options_(options), counts_(counts), name_(name) {
  ledger.throw_pending();
}

Operation& Operation::reads(std::string argument, ConstView view) {
  operands_.push_back({.argument = std::move(argument), .view = view, .read = true});
  return *this;
}

Operation& Operation::writes(std::string argument, ConstView view) {
  operands_.push_back({.argument = std::move(argument), .view = view, .written = true});
  return *this;
}

Operation& Operation::updates(std::string argument, ConstView view) {
  operands_.push_back({.argument = std::move(argument), .view = view, .read = true, .written = true});
  return *this;
}

Operation& Operation::reads_rows(std::string argument, ConstView view) {
  operands_.push_back({.argument = std::move(argument), .view = view, .read = true, .whole = false});
  return *this;
}

Operation& Operation::writes_rows(std::string argument, ConstView view) {
  operands_.push_back({.argument = std::move(argument), .view = view, .written = true, .whole = false});
  return *this;
}

void Operation::check() {
  for (Operand& operand : operands_) {
    check_layout(operand);
    locate(operand);
  }
  check_overlaps();
  check_contents();
}

void Operation::check_copy() {
  for (Operand& operand : operands_) locate(operand);
  check_contents();
}

void Operation::locate(Operand& operand) {
  operand.region = &ledger_.region_of(site(operand.argument), operand.view);
  if (operand.whole) operand.touched = ranges_of(operand.view);
}

void Operation::check_contents() const {
  for (const Operand& operand : operands_)
    if (operand.read)
      for (ByteRange range : operand.touched) check_written(operand, range, std::nullopt);
}

void Operation::check_layout(const Operand& operand) {
  const ConstView& view = operand.view;
  if (!view.dense()) ++counts_.strided_copies;
  if (options_.profile != CheckedProfile::ascend) return;
  if (view.elements() == 0)
    throw RuleViolation(site(operand.argument), "R1", fmt::format("{} has no elements", view.describe()));
  if (reinterpret_cast<std::uintptr_t>(view.data()) % 32 != 0)
    throw RuleViolation(site(operand.argument), "R2",
                        fmt::format("{} does not start on a multiple of 32 bytes", view.describe()));
}

void Operation::check_overlaps() const {
  for (std::size_t i = 0; i < operands_.size(); ++i)
    for (std::size_t j = i + 1; j < operands_.size(); ++j) {
      const Operand &a = operands_[i], &b = operands_[j];
      if (a.region != b.region || (!a.written && !b.written)) continue;
      if (overlap(ranges_of(a.view), ranges_of(b.view)))
        throw RuleViolation(site(b.written ? b.argument : a.argument), "R6",
                            fmt::format("overlaps {}", b.written ? a.argument : b.argument));
    }
}

void Operation::check_written(const Operand& operand, ByteRange range, std::optional<std::int64_t> row) const {
  const std::byte* const unwritten = operand.region->first_unwritten(range);
  if (unwritten == range.end) return;
  const std::int64_t width = traits(operand.view.type()).block_bytes;
  const std::int64_t element = (unwritten - operand.view.data()) / width;
  const std::int64_t stride = operand.view.row_stride();
  throw RuleViolation(site(operand.argument, row ? *row : element / stride), "R4",
                      fmt::format("element {} of row {} of {} was never written", element % stride, element / stride,
                                  operand.view.describe()));
}

Operation::Operand& Operation::operand(std::string_view argument) {
  return *std::ranges::find(operands_, argument, &Operand::argument);
}

void Operation::touches_row(std::string_view argument, std::int64_t index, std::int64_t row) {
  Operand& touched = operand(argument);
  const ByteRange range = ranges_of(touched.view.rows(index, 1))[0];
  if (touched.read) check_written(touched, range, row);
  touched.touched.push_back(range);
}

void Operation::needs_row(std::string_view argument, std::int64_t index, std::int64_t row) {
  const Operand& needed = operand(argument);
  check_written(needed, ranges_of(needed.view.rows(index, 1))[0], row);
}

// The bytes within kMargin of an output that belong to its buffer but to no output.
std::vector<Operation::Watched> Operation::watch() const {
  std::vector<Watched> outputs;
  for (const Operand& operand : operands_)
    if (operand.written)
      for (ByteRange range : operand.touched) outputs.push_back({&operand, range, {}});
  std::ranges::sort(outputs, std::less<>(), [](const Watched& w) { return w.range.begin; });

  std::vector<Watched> zones;
  const auto add_zone = [&](const Operand* operand, const std::byte* begin, const std::byte* end) {
    if (begin < end) zones.push_back({operand, {begin, end}, ledger_.read({begin, end})});
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [operand, range, unused] = outputs[i];
    const std::byte* lowest = operand->region->data();
    const std::byte* highest = lowest + operand->region->size();
    if (i > 0) lowest = std::max(lowest, outputs[i - 1].range.end);
    if (i + 1 < outputs.size()) highest = std::min(highest, outputs[i + 1].range.begin);
    add_zone(operand, range.begin - std::min(kMargin, range.begin - lowest), range.begin);
    if (range.end < highest) add_zone(operand, range.end, range.end + std::min(kMargin, highest - range.end));
  }
  return zones;
}

void Operation::run(const std::function<void()>& op) {
  const std::vector<Watched> zones = watch();
  op();
  for (const Operand& operand : operands_) {
    if (operand.written)
      for (ByteRange range : operand.touched) operand.region->mark_written(range);
    ledger_.check_guards(site(operand.argument), *operand.region);
  }
  for (const Watched& zone : zones)
    if (ledger_.read(zone.range) != zone.before)
      throw RuleViolation(site(zone.operand->argument), "R3", "the op wrote next to this output");
}

}  // namespace espalier

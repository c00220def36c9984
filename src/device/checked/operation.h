// One call of an op under the rules: its operands are declared, checked, then the op runs while the bytes around its
// outputs are watched.
//
//   Operation op(ledger, options, counts, "rms_norm");
//   op.reads("x", x).reads("w", w).writes("y", y).check();
//   op.run([&] { inner.rms_norm(x, w, eps, y); });
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "device/checked/checked_device.h"
#include "device/checked/memory_ledger.h"

namespace espalier {

class Operation {
 public:
  Operation(MemoryLedger& ledger, const CheckedOptions& options, CheckedCounts& counts, std::string_view name);

  // An operand whose elements are all read, all written, or both (in place).
  Operation& reads(std::string argument, ConstView view);
  Operation& writes(std::string argument, ConstView view);
  Operation& updates(std::string argument, ConstView view);
  // An operand of which a table selects rows: the caller says which by touches_row(), once it has checked the table.
  Operation& reads_rows(std::string argument, ConstView view);
  Operation& writes_rows(std::string argument, ConstView view);

  // Everything that can be said without looking into tables: R1, R2, R4, R5, R6, R8.
  void check();
  // The same for a copy to or from the host, which may start anywhere.
  void check_copy();
  // Row `index` of an operand of the last two kinds takes part, because of row `row` of the call. R4 for what is read.
  void touches_row(std::string_view argument, std::int64_t index, std::int64_t row);
  // Row `index` of an operand whose rows are written is read before that, because of row `row` of the call. R4.
  void needs_row(std::string_view argument, std::int64_t index, std::int64_t row);
  // Runs the op and throws R3 if bytes next to its outputs or a guard zone changed.
  void run(const std::function<void()>& op);

  std::string_view name() const { return name_; }
  CallSite site(std::string_view argument, std::optional<std::int64_t> row = std::nullopt) const {
    return {name_, argument, row};
  }

 private:
  struct Operand {
    std::string argument;
    ConstView view;
    bool read = false;
    bool written = false;
    bool whole = true;
    MemoryLedger::Region* region = nullptr;
    std::vector<ByteRange> touched = {};
  };
  struct Watched {
    const Operand* operand;
    ByteRange range;
    std::vector<std::byte> before;
  };

  void locate(Operand& operand);
  void check_layout(const Operand& operand);
  void check_contents() const;
  void check_overlaps() const;
  void check_written(const Operand& operand, ByteRange range, std::optional<std::int64_t> row) const;
  Operand& operand(std::string_view argument);
  std::vector<Watched> watch() const;

  MemoryLedger& ledger_;
  const CheckedOptions& options_;
  CheckedCounts& counts_;
  std::string_view name_;
  std::vector<Operand> operands_;
};

}  // namespace espalier

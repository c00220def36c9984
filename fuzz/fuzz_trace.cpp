// Any bytes, read as a trace, as the lines of one turn, which compression would hide from the fuzzer, and as a failure
// dump: something that holds together, or InputError in one line. What was read is written and read again; it equals
// itself and has figures.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "require.h"
#include "trace/failure_dump.h"
#include "trace/trace_diff.h"
#include "trace/trace_file.h"
#include "trace/trace_stats.h"

namespace {

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

void read_turn(std::string_view text) {
  const espalier::TracedTurn turn = espalier::traced_turn_from(split_lines(text), "fuzz.jsonl");
  const std::vector<std::string> lines = espalier::to_lines(turn);
  const std::vector<std::string_view> views(lines.begin(), lines.end());
  require(espalier::to_lines(espalier::traced_turn_from(views, "fuzz.jsonl")) == lines);
  require(espalier::compare_turns(turn, turn).kind == espalier::DifferenceKind::none);
  espalier::TraceStats stats;
  stats.add(turn);
  require(!espalier::stats_text(stats).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuse_in_one_line([&] {
    espalier::TraceReader reader(file, "fuzz.zst");
    while (reader.next()) {
    }
  });
  refuse_in_one_line([&] { read_turn(text); });
  refuse_in_one_line([&] { espalier::failure_dump_from(text, "fuzz.json"); });
  return 0;
}

// write_seeds FOLDER: small valid files for the fuzzers to start from, into FOLDER/gguf,
// FOLDER/safetensors and FOLDER/trace.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "format/testing/gguf_builder.h"
#include "format/testing/safetensors_builder.h"
#include "trace/failure_dump.h"
#include "trace/testing/random_turn.h"
#include "trace/trace_file.h"

namespace espalier {
namespace {

void write_gguf_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  GgufBuilder().write(folder / "empty");
  GgufBuilder metadata;
  metadata.set("u8", std::uint8_t{1}).set("i8", std::int8_t{-1}).set("u16", std::uint16_t{2});
  metadata.set("i16", std::int16_t{-2}).set("u32", 3u).set("i32", -3).set("u64", std::uint64_t{4});
  metadata.set("i64", std::int64_t{-4}).set("f32", 0.5f).set("f64", 0.25).set("bool", true).set("text", "llama");
  metadata.write(folder / "metadata");
  GgufBuilder arrays;
  arrays.set("texts", std::vector<std::string>{"a", "", "b"}).set("bools", std::vector<bool>{true, false});
  arrays.set("integers", std::vector<std::int32_t>{1, 2, 3}).set("floats", std::vector<float>{1, 2});
  arrays.set("nested", std::vector<std::vector<std::int16_t>>{{1}, {}, {2, 3}});
  arrays.write(folder / "arrays");
  GgufBuilder tensors;
  tensors.alignment(8);
  for (DType type : kLinearTypes)
    tensors.tensor(name(type), type, {1, 256}, std::string(static_cast<std::size_t>(row_bytes(type, 256)), 'x'));
  tensors.write(folder / "tensors");
  GgufBuilder()
      .set("general.architecture", "llama")
      .set("split.no", std::uint16_t{0})
      .set("split.count", std::uint16_t{0})
      .tensor("a", DType::f32, {2, 3}, std::string(24, 'x'))
      .tensor("b", DType::i64, {1, 1, 1, 2}, std::string(16, 'x'))
      .write(folder / "model");
}

void write_safetensors_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  SafetensorsBuilder().write(folder / "empty");
  SafetensorsBuilder()
      .tensor("a", DType::f32, {2, 3}, std::string(24, 'x'))
      .tensor("b", DType::bf16, {2}, "wxyz")
      .metadata("format", "pt")
      .write(folder / "model");
  SafetensorsBuilder all;
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8})
    all.tensor(name(type), type, {1, 2}, std::string(static_cast<std::size_t>(row_bytes(type, 2)), 'x'));
  all.tensor("scalar", DType::u8, {}, "x").write(folder / "types");
  write_sharded_safetensors(folder, {SafetensorsBuilder().tensor("a", DType::u8, {1}, "a"), SafetensorsBuilder()});
}

// A whole trace, the lines of a turn as they are, and a dump.
void write_trace_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const TracedTurn turn = random_turn(1);
  std::ofstream(folder / "trace", std::ios::binary) << trace_bytes(TraceHeader{}) << trace_bytes(turn);
  std::ofstream lines(folder / "turn", std::ios::binary);
  for (const std::string& line : to_lines(turn)) lines << line << "\n";
  std::vector<std::int32_t> plain = turn.tokens;
  plain.back() += 1;
  std::filesystem::rename(write_failure_dump(mismatch_dump(turn, plain, "length"), {}, folder), folder / "dump");
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  espalier::write_gguf_seeds(folder / "gguf");
  espalier::write_safetensors_seeds(folder / "safetensors");
  espalier::write_trace_seeds(folder / "trace");
}

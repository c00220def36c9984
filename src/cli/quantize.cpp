#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "device/blocks.h"
#include "device/quantise_row.h"
#include "engine/engine.h"
#include "format/gguf.h"
#include "format/gguf_encode.h"
#include "format/gguf_writer.h"

namespace espalier {
namespace {

struct QuantizeFlags {
  std::string in;
  std::string out;
  std::string type;
  int threads = 0;  // 0: one per core
  Existing existing = Existing::refuse;
  bool verbose = false;
};

// What becomes of one tensor.
struct Conversion {
  const TensorInfo* from = nullptr;
  DType to = DType::f32;
  bool odd_rows = false;  // f16, because its rows are no whole blocks of the wanted type

  bool kept() const { return to == from->type; }
  std::int64_t columns() const { return from->shape.back(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(from->bytes.size()) / row_bytes(from->type, columns()); }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(rows() * row_bytes(to, columns())); }
};

// The numbers that llama.cpp gives to files whose matrices are mostly of one type, and to its block layouts.
std::uint32_t file_type_number(DType type) {
  switch (type) {
    case DType::f16: return 1;
    case DType::q4_0: return 2;
    case DType::q4_1: return 3;
    default: return 7;  // q8_0
  }
}
constexpr std::uint32_t kQuantisationVersion = 2;

// Vectors, norms and tables of integers stay as they are: they are small, and every bit of them counts.
bool is_matrix(const TensorInfo& tensor) {
  const bool number = is_float(tensor.type) || is_block_quantised(tensor.type);
  return number && tensor.shape.size() >= 2 && tensor.name.ends_with("weight") &&
         !tensor.name.ends_with("_norm.weight");
}

Conversion plan_conversion(const TensorInfo& tensor, DType wanted) {
  if (!is_matrix(tensor)) return {&tensor, tensor.type};
  const bool odd = tensor.shape.back() % traits(wanted).block_elements != 0;
  return {&tensor, odd ? DType::f16 : wanted, odd};
}

std::vector<Conversion> plan_conversions(const Gguf& source, DType wanted) {
  std::vector<Conversion> conversions;
  for (const TensorInfo& tensor : source.tensors()) conversions.push_back(plan_conversion(tensor, wanted));
  return conversions;
}

// All entries as they are, but those that say how the file is made; a set of split files becomes one.
std::vector<GgufEntry> new_metadata(const std::filesystem::path& in, DType wanted) {
  const MappedFile file(in);
  std::vector<GgufEntry> entries = read_gguf_entries(file.bytes(), in.string());
  std::erase_if(entries, [](const GgufEntry& entry) { return entry.key.starts_with("split."); });
  const auto set = [&](const std::string& key, std::uint32_t value) {
    const auto found = std::ranges::find(entries, key, &GgufEntry::key);
    GgufEntry& entry = found == entries.end() ? entries.emplace_back() : *found;
    entry = {key, gguf_entry(key, gguf_encode(value))};
  };
  set("general.file_type", file_type_number(wanted));
  set("general.quantization_version", kQuantisationVersion);
  return entries;
}

GgufPlan plan_file(const std::filesystem::path& in, const Gguf& source, const std::vector<Conversion>& conversions,
                   DType wanted) {
  GgufPlan plan{.metadata = new_metadata(in, wanted)};
  plan.alignment = static_cast<std::uint64_t>(
      source.integer("general.alignment").value_or(static_cast<std::int64_t>(kDefaultGgufAlignment)));
  for (const Conversion& conversion : conversions)
    plan.tensors.push_back({conversion.from->name, conversion.to, conversion.from->shape});
  return plan;
}

// The rows of a tensor in its new type; `data` holds the whole tensor.
void convert(const Conversion& conversion, std::string_view where, ThreadPool& pool, std::vector<std::byte>& data) {
  const TensorInfo& from = *conversion.from;
  const std::int64_t columns = conversion.columns();
  const auto old_bytes = static_cast<std::size_t>(row_bytes(from.type, columns));
  const auto new_bytes = static_cast<std::size_t>(row_bytes(conversion.to, columns));
  data.resize(conversion.bytes());
  pool.run(conversion.rows(), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(columns));
    for (auto row = static_cast<std::size_t>(begin); row < static_cast<std::size_t>(end); ++row) {
      widen_row(from.type, from.bytes.subspan(row * old_bytes, old_bytes), values);
      if (!quantisable(values))
        input_error("{}: tensor {}: row {}: expected finite weights below 65520, got others", where, from.name, row);
      quantise_row(conversion.to, values, std::span(data).subspan(row * new_bytes, new_bytes));
    }
  });
}

// The pages of a tensor that nobody needs any more: without this the whole file would stay in memory.
void release_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

class Table {
 public:
  void add(const Conversion& conversion) {
    const std::string_view old = name(conversion.from->type);
    const std::string_view note = conversion.odd_rows ? ", rows are no multiple of 32" : "";
    Line& line = lines_[conversion.kept() ? fmt::format("{} kept", old)
                                          : fmt::format("{} -> {}{}", old, name(conversion.to), note)];
    ++line.tensors;
    line.before += conversion.from->bytes.size();
    line.after += conversion.bytes();
  }

  std::string text() const {
    std::string text = fmt::format("{:<42} {:>7} {:>12} {:>12}\n", "", "tensors", "before", "after");
    Line total;
    for (const auto& [label, line] : lines_) {
      text += row(label, line);
      total = {total.tensors + line.tensors, total.before + line.before, total.after + line.after};
    }
    return text + row("all", total);
  }

 private:
  struct Line {
    std::int64_t tensors = 0;
    std::uint64_t before = 0;
    std::uint64_t after = 0;
  };

  static std::string row(const std::string& label, const Line& line) {
    return fmt::format("{:<42} {:>7} {:>9.2f} MB {:>9.2f} MB\n", label, line.tensors,
                       static_cast<double>(line.before) / 1e6, static_cast<double>(line.after) / 1e6);
  }

  std::map<std::string, Line> lines_;
};

// Writes all tensors; false when Ctrl-C came.
bool write_tensors(const std::vector<Conversion>& conversions, const QuantizeFlags& flags, GgufWriter& writer) {
  const InterruptGuard interrupt;
  ProgressBar bar("quantising");
  ThreadPool pool(thread_count(flags.threads));
  std::vector<std::byte> data;
  for (std::size_t i = 0; i < conversions.size(); ++i) {
    if (interrupt.interrupted()) return false;
    const Conversion& conversion = conversions[i];
    if (!conversion.kept()) convert(conversion, flags.in, pool, data);
    writer.tensor(conversion.kept() ? conversion.from->bytes : std::span<const std::byte>(data));
    release_pages(conversion.from->bytes);
    bar.show(static_cast<double>(i + 1) / static_cast<double>(conversions.size()));
  }
  writer.finish();
  return true;
}

// A shard of the set that IN begins counts as IN.
bool is_part_of(const std::filesystem::path& out, const std::filesystem::path& in, std::int64_t shards) {
  if (std::filesystem::equivalent(in, out)) return true;
  const std::string name = in.string(), suffix = fmt::format("-00001-of-{:05}.gguf", shards);
  if (!name.ends_with(suffix)) return false;
  for (std::int64_t i = 2; i <= shards; ++i) {
    const std::filesystem::path shard =
        name.substr(0, name.size() - suffix.size()) + fmt::format("-{:05}-of-{:05}.gguf", i, shards);
    if (std::filesystem::equivalent(shard, out)) return true;
  }
  return false;
}

void check_target(const QuantizeFlags& flags, const Gguf& source) {
  if (std::filesystem::is_regular_file(flags.out) &&
      is_part_of(flags.out, flags.in, source.integer("split.count").value_or(0)))
    input_error("{}: IN and OUT are the same file, expected another name", flags.out);
  check_output(flags.out, flags.existing);
}

void print_summary(const std::vector<Conversion>& conversions, const QuantizeFlags& flags, std::uint64_t bytes) {
  Table table;
  std::string text;
  bool coarse = false;
  for (const Conversion& conversion : conversions) {
    table.add(conversion);
    coarse = coarse || (is_block_quantised(conversion.from->type) && !conversion.kept());
    if (flags.verbose)
      text +=
          fmt::format("{:<42} {:>5} -> {}\n", conversion.from->name, name(conversion.from->type), name(conversion.to));
  }
  text += table.text();
  if (coarse)
    text += "note: what a block format has lost does not come back; quantise from f16 or f32 for best results\n";
  text += fmt::format("{}: {:.2f} MB\n", flags.out, static_cast<double>(bytes) / 1e6);
  if (flags.out == "-") return tell(text);  // the file is there
  print(text);
  flush_output();
}

int run_quantize(const QuantizeFlags& flags) {
  if (std::filesystem::is_directory(flags.in))
    input_error("{}: expected a GGUF file, got a folder: convert_hf_to_gguf.py of llama.cpp makes one of it", flags.in);
  const Gguf source(flags.in);
  check_target(flags, source);
  const DType wanted = *parse_dtype(flags.type);
  const std::vector<Conversion> conversions = plan_conversions(source, wanted);
  GgufWriter writer(flags.out, plan_file(flags.in, source, conversions, wanted), flags.existing);
  if (!write_tensors(conversions, flags, writer)) {
    tell("espalier: interrupted, nothing was written\n");
    return kInterrupted;
  }
  print_summary(conversions, flags, writer.bytes_written());
  return 0;
}

}  // namespace

Command add_quantize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("quantize", "write a GGUF model with its matrices in another type");
  auto flags = std::make_shared<QuantizeFlags>();
  command->add_option("IN", flags->in, "a GGUF file, or the first of a split set")->required();
  command->add_option("OUT", flags->out, "the GGUF file to write; - is standard output")->required();
  command->add_option("--type", flags->type, "the type of the matrices: f16, q8_0, q4_0 or q4_1")
      ->required()
      ->check(CLI::IsMember({"f16", "q8_0", "q4_0", "q4_1"}))
      ->type_name("TYPE");
  add_threads_flag(*command, flags->threads);
  add_force_flag(*command, flags->existing);
  command->add_flag("-v,--verbose", flags->verbose, "list every tensor");
  return [flags] { return run_quantize(*flags); };
}

}  // namespace espalier

#include "engine/model_conversion.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "device/blocks.h"
#include "device/quantise_row.h"
#include "format/gguf_encode.h"

namespace espalier {
namespace {

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

TensorConversion plan_conversion(const TensorInfo& tensor, DType wanted) {
  if (!is_matrix(tensor)) return {&tensor, tensor.type};
  const bool odd = tensor.shape.back() % traits(wanted).block_elements != 0;
  return {&tensor, odd ? DType::f16 : wanted, odd};
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

// The rows of a tensor in its new type; `data` holds the whole tensor.
void convert_rows(const TensorConversion& conversion, std::string_view where, ThreadPool& pool,
                  std::vector<std::byte>& data) {
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

}  // namespace

std::vector<TensorConversion> plan_conversions(const Gguf& source, DType wanted) {
  std::vector<TensorConversion> conversions;
  for (const TensorInfo& tensor : source.tensors()) conversions.push_back(plan_conversion(tensor, wanted));
  return conversions;
}

GgufPlan plan_converted_file(const std::filesystem::path& in, const Gguf& source,
                             const std::vector<TensorConversion>& conversions, DType wanted) {
  GgufPlan plan{.metadata = new_metadata(in, wanted)};
  plan.alignment = static_cast<std::uint64_t>(
      source.integer("general.alignment").value_or(static_cast<std::int64_t>(kDefaultGgufAlignment)));
  for (const TensorConversion& conversion : conversions)
    plan.tensors.push_back({conversion.from->name, conversion.to, conversion.from->shape});
  return plan;
}

bool write_converted(const Gguf& source, const std::vector<TensorConversion>& conversions, ThreadPool& pool,
                     const ConversionEvents& events, GgufWriter& writer) {
  std::vector<std::byte> data;
  for (std::size_t i = 0; i < conversions.size(); ++i) {
    if (events.cancelled && events.cancelled()) return false;
    const TensorConversion& conversion = conversions[i];
    if (!conversion.kept()) convert_rows(conversion, source.description(), pool, data);
    writer.tensor(conversion.kept() ? conversion.from->bytes : std::span<const std::byte>(data));
    source.release(*conversion.from);
    if (events.progress) events.progress(static_cast<double>(i + 1) / static_cast<double>(conversions.size()));
  }
  writer.finish();
  return true;
}

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

}  // namespace espalier

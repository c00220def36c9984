#include "model/draft_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "device/blocks.h"
#include "format/safetensors.h"
#include "model/step_tables.h"

namespace espalier {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;

using RowOfToken = std::unordered_map<std::int64_t, std::int32_t>;

RowOfToken rows_by_token(std::span<const std::int32_t> target_ids) {
  RowOfToken rows;
  for (std::size_t i = 0; i < target_ids.size(); ++i) rows.emplace(target_ids[i], static_cast<std::int32_t>(i));
  return rows;
}

// All rows in the order of the file, each once.
std::vector<std::int32_t> read_order(const std::filesystem::path& file, std::span<const std::int32_t> target_ids) {
  const nlohmann::json order = read_json_file(file);
  if (!order.is_array() || order.size() != target_ids.size())
    input_error("{}: expected a list of {} tokens, all that the head may guess, got {}", file.string(),
                target_ids.size(), order.is_array() ? std::to_string(order.size()) : std::string(order.type_name()));
  RowOfToken unlisted = rows_by_token(target_ids);
  std::vector<std::int32_t> rows;
  for (const nlohmann::json& token : order) {
    const auto found = token.is_number_integer() ? unlisted.find(token.get<std::int64_t>()) : unlisted.end();
    if (found == unlisted.end())
      input_error("{}: element {}: expected a token of the head's draft vocabulary, each once, got {}", file.string(),
                  rows.size(), token.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    rows.push_back(found->second);
    unlisted.erase(found);
  }
  return rows;
}

// Rows of a weight as floats, some at a time: whatever the device made of the weight, it can embed with it.
class RowWidener {
 public:
  RowWidener(Device& device, const Weight& weight)
      : device_(device),
        weight_(weight),
        index_(device.tensor(DType::i32, {bucket_for(device, kRowsAtOnce)})),
        widened_(device.tensor(DType::f32, {index_.view.dim(0), weight.inputs()})),
        values_(rows_at_once() * static_cast<std::size_t>(weight.inputs())) {}

  std::size_t rows_at_once() const { return static_cast<std::size_t>(index_.view.dim(0)); }
  // Valid until the next call.
  std::span<const float> widen(std::span<const std::int32_t> rows) {
    std::vector<std::int32_t> padded(rows_at_once(), rows.front());
    std::ranges::copy(rows, padded.begin());
    upload<std::int32_t>(device_, padded, index_);
    device_.embed(weight_, index_, widened_);
    download<float>(device_, widened_, values_);
    return values_;
  }

 private:
  Device& device_;
  const Weight& weight_;
  Tensor index_;
  Tensor widened_;
  std::vector<float> values_;
};

void store_row(DType type, std::span<const float> values, std::span<std::byte> to) {
  if (type == DType::q8_0) {
    quantise_row_q8_0(values, to);
  } else {
    std::ranges::copy(std::as_bytes(values), to.begin());
  }
}

}  // namespace

std::optional<std::vector<std::int32_t>> most_frequent_rows(const HeadFiles& files, const HeadOptions& options,
                                                            std::span<const std::int32_t> target_ids) {
  if (!options.vocabulary || *options.vocabulary >= static_cast<std::int64_t>(target_ids.size())) return std::nullopt;
  check(*options.vocabulary >= 1, "a draft vocabulary of {} tokens", *options.vocabulary);
  const std::filesystem::path file = files.folder / "vocab_order.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    input_error("{}: no such file, expected the head's tokens by frequency: without it --draft-vocab cannot cut",
                file.string());
  std::vector<std::int32_t> rows = read_order(file, target_ids);
  rows.resize(static_cast<std::size_t>(*options.vocabulary));
  std::ranges::sort(rows);
  return rows;
}

std::vector<std::int32_t> picked(std::span<const std::int32_t> values, std::span<const std::int32_t> rows) {
  std::vector<std::int32_t> result;
  for (std::int32_t row : rows) result.push_back(values[static_cast<std::size_t>(row)]);
  return result;
}

std::vector<float> widened_rows(Device& device, const Weight& weight, std::span<const std::int32_t> rows) {
  const auto width = static_cast<std::size_t>(weight.inputs());
  RowWidener widener(device, weight);
  std::vector<float> values;
  for (std::size_t first = 0; first < rows.size(); first += widener.rows_at_once()) {
    const auto some = rows.subspan(first, std::min(rows.size() - first, widener.rows_at_once()));
    const auto widened = widener.widen(some).first(some.size() * width);
    values.insert(values.end(), widened.begin(), widened.end());
  }
  return values;
}

std::unique_ptr<const Weight> copy_rows(Device& device, const Weight& weight, std::span<const std::int32_t> rows,
                                        WeightMode mode) {
  const std::int64_t inputs = weight.inputs();
  const bool whole_blocks = inputs % traits(DType::q8_0).block_elements == 0;
  const DType type = mode == WeightMode::q8_0 && whole_blocks ? DType::q8_0 : DType::f32;
  const auto row_size = static_cast<std::size_t>(row_bytes(type, inputs)), width = static_cast<std::size_t>(inputs);
  RowWidener widener(device, weight);
  std::vector<std::byte> bytes(rows.size() * row_size);
  for (std::size_t first = 0; first < rows.size(); first += widener.rows_at_once()) {
    const auto some = rows.subspan(first, std::min(rows.size() - first, widener.rows_at_once()));
    const std::span<const float> values = widener.widen(some);
    for (std::size_t r = 0; r < some.size(); ++r)
      store_row(type, values.subspan(r * width, width), std::span(bytes).subspan((first + r) * row_size, row_size));
  }
  const WeightPart part{type, static_cast<std::int64_t>(rows.size()), inputs, bytes};
  return device.load_weight(std::span(&part, 1));
}

}  // namespace espalier

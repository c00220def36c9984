#include "model/medusa_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr std::int64_t kMaxHeads = 64;              // published files have 2 to 5
constexpr std::int64_t kLargestNumber = 1'000'000;  // of a head or block, in a name

std::string_view bare(std::string_view name) {
  for (std::string_view prefix : {"medusa_heads.", "medusa_head."})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

// Takes a number off the front of a name.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kLargestNumber) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(after - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

struct Place {
  std::int64_t head = 0;
  std::int64_t index = 0;
};

// A name of the form BEFORE head BETWEEN index REST, with REST one of two.
std::optional<Place> place(std::string_view name, std::string_view before, std::string_view between,
                           std::string_view rest, std::string_view other_rest) {
  if (!take(name, before)) return std::nullopt;
  const auto head = take_number(name);
  if (!head || !take(name, between)) return std::nullopt;
  const auto index = take_number(name);
  if (!index || (name != rest && name != other_rest)) return std::nullopt;
  return Place{*head, *index};
}

std::optional<Place> block_place(std::string_view name, bool vllm) {
  return vllm ? place(name, "blocks.", ".layers.", ".weight", ".bias")
              : place(name, "", ".", ".linear.weight", ".linear.bias");
}

bool is_numbered(std::string_view name) {
  return take_number(name) && name.starts_with('.');
}

bool is_low_rank(std::string_view name) {
  if (!take_number(name)) return false;
  return name.starts_with(".lora_A.") || name.starts_with(".lora_B.") || name.starts_with(".W_a.") ||
         name.starts_with(".W_b.");
}

}  // namespace

bool has_medusa_names(const TensorSource& source) {
  return std::any_of(source.tensors().begin(), source.tensors().end(), [](const TensorInfo& info) {
    const std::string_view name = bare(info.name);
    return name != info.name || is_numbered(name) || name.starts_with("blocks.");
  });
}

void refuse_other_medusa(const TensorSource& source) {
  bool numbered = false, backbone = false;
  for (const TensorInfo& info : source.tensors()) {
    const std::string_view name = bare(info.name);
    if (is_low_rank(name))
      input_error("{}: {}: low-rank Medusa heads (layout F) are not supported, expected heads with whole matrices",
                  source.description(), in_quotes(info.name));
    numbered = numbered || is_numbered(name);
    backbone = backbone || name.starts_with("model.") || name.starts_with("lm_head.");
  }
  if (numbered && backbone)
    input_error(
        "{}: a merged Medusa-2 model (layout C): its heads were trained with a backbone of their own and do not fit "
        "this teacher, expected a file with heads only",
        source.description());
}

MedusaLayout::MedusaLayout(const TensorSource& source) {
  index_names(source);
  count_blocks(source);
  if (!vllm_) check_outputs(source);
}

void MedusaLayout::index_names(const TensorSource& source) {
  for (const TensorInfo& info : source.tensors()) {
    const auto [known, fresh] = spelling_.emplace(bare(info.name), info.name);
    if (!fresh)
      input_error("{}: tensor {} is there twice, also as {}", source.description(), in_quotes(info.name),
                  in_quotes(known->second));
    vllm_ = vllm_ || known->first.starts_with("blocks.");
  }
}

void MedusaLayout::count_blocks(const TensorSource& source) {
  for (const auto& entry : spelling_)
    if (const auto found = block_place(entry.first, vllm_)) {
      heads_ = std::max(heads_, found->head + 1);
      blocks_ = std::max(blocks_, found->index + 1);
    }
  if (heads_ == 0)
    input_error("{}: no Medusa block, expected 0.0.linear.weight or blocks.0.layers.0.weight", source.description());
  if (heads_ > kMaxHeads || blocks_ > kMaxHeads)
    input_error("{}: {} Medusa heads of {} blocks, expected at most {} of either", source.description(), heads_,
                blocks_, kMaxHeads);
}

void MedusaLayout::check_outputs(const TensorSource& source) {
  for (const auto& [name, in_file] : spelling_)
    if (const auto found = place(name, "", ".", ".weight", ".weight")) {
      outputs_ = true;
      if (found->index != blocks_)
        input_error("{}: {}: expected the output matrix after {} blocks, {}.{}.weight", source.description(), in_file,
                    blocks_, found->head, blocks_);
    }
}

std::string MedusaLayout::weight(std::int64_t head, std::int64_t block) const {
  return block_tensor(head, block, "weight");
}

std::string MedusaLayout::bias(std::int64_t head, std::int64_t block) const {
  return block_tensor(head, block, "bias");
}

std::string MedusaLayout::output(std::int64_t head) const {
  return spelled(vllm_ ? fmt::format("lm_heads.{}.weight", head) : fmt::format("{}.{}.weight", head, blocks_));
}

std::string MedusaLayout::block_tensor(std::int64_t head, std::int64_t block, const char* what) const {
  return spelled(vllm_ ? fmt::format("blocks.{}.layers.{}.{}", head, block, what)
                       : fmt::format("{}.{}.linear.{}", head, block, what));
}

std::string MedusaLayout::spelled(std::string name) const {
  const auto known = spelling_.find(name);
  return known == spelling_.end() ? name : known->second;
}

}  // namespace espalier

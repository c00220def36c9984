// A draft vocabulary cut to its most frequent tokens. A head's output matrix has one row for each token it may guess,
// and most of the time of a draft step goes there; few rows hold nearly all tokens that are ever written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/head_files.h"

namespace espalier {

// The rows to keep where the options cut the vocabulary, ascending; nothing: all of them. Which tokens are frequent,
// vocab_order.json beside the head says: all of its tokens, the most frequent first. target_ids: the teacher's id of
// every row. Throws InputError: the file is missing, or lists other tokens.
std::optional<std::vector<std::int32_t>> most_frequent_rows(const HeadFiles& files, const HeadOptions& options,
                                                            std::span<const std::int32_t> target_ids);

std::vector<std::int32_t> picked(std::span<const std::int32_t> values, std::span<const std::int32_t> rows);

// Rows of a weight that the device has already, as floats.
std::vector<float> widened_rows(Device& device, const Weight& weight, std::span<const std::int32_t> rows);

// Rows of a weight that the device has already, as a weight of their own: the teacher's output matrix has no file any
// more. With WeightMode::q8_0 quantised, else f32.
std::unique_ptr<const Weight> copy_rows(Device& device, const Weight& weight, std::span<const std::int32_t> rows,
                                        WeightMode mode);

}  // namespace espalier

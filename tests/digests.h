// SHA-256 digests of logits, KV and tokens for fixed inputs: the bits that every machine, compiler, instruction set and
// thread count must reproduce (docs/arithmetic.md). A changed digest is a change of the contract.
#pragma once

#include <map>
#include <span>
#include <string>

#include "device/device.h"

namespace espalier::testing {

// "llama2" -> {"logits": ..., "kv_f16": ..., ...}
using Digests = std::map<std::string, std::map<std::string, std::string>>;

// Of floats; a NaN is an error, its bits are not pinned.
std::string digest(std::span<const float> values);

// digests.json, whose arithmetic must be that of this program.
Digests pinned_digests();

// Those of float weights only where the device adds them as the contract does.
Digests tiny_model_digests(Device& device);
Digests default_model_digests(Device& device);  // needs the default model

}  // namespace espalier::testing

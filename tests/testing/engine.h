// What whole-engine tests share: where fixtures are, goldens as plain vectors, running rows through a model.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/testing/sanitized.h"
#include "cache/kv_cache.h"
#include "device/device.h"
#include "model/transformer.h"

namespace espalier::testing {

// Under tests/data, or where ESPALIER_TEST_DATA says that it lies: installed tests were built elsewhere.
std::filesystem::path data_path(const std::string& name);
std::filesystem::path default_model();  // fetched by `make model`

// The tiny model families, as folder names under tests/data/tiny.
std::vector<std::string> tiny_families();

// A device with its name in the test output.
struct NamedDevice {
  std::string name;
  std::unique_ptr<Device> (*make)(int threads);
};
std::vector<NamedDevice> all_devices();  // the reference device first; or the judged one alone
std::vector<NamedDevice> gpu_devices();  // one of them, or none: on machines without a GPU

// A tensor of a golden file.
std::vector<float> golden_floats(const std::filesystem::path& file, const std::string& tensor);
std::vector<std::int32_t> golden_tokens(const std::filesystem::path& file, const std::string& tensor);
// Of vectors of one size; infinite where one has a NaN.
float largest_difference(std::span<const float> a, std::span<const float> b);

// A model whose configuration is not quite that of its file.
Transformer load_changed(Device& device, const std::filesystem::path& path, WeightMode mode,
                         const std::function<void(ModelConfig&)>& change);

// How far two correct roundings of a model's frequencies may be apart, relatively: four roundings each.
inline constexpr double kFrequencyBound = 8 * 0x1p-24;
double largest_relative_difference(std::span<const float> a, std::span<const float> b);

// One sequence fed to a model in steps of chosen sizes, with everything it computed.
struct ForwardRun {
  std::vector<float> logits;  // [tokens, vocabulary], or of the positions asked for
  std::vector<float> hidden;  // [tokens, hidden], likewise
  std::vector<float> taps;    // [tokens, boundaries * hidden]
  std::vector<std::byte> kv;  // K and V of every layer in logical order of positions
};
struct ForwardOptions {
  DType kv_type = DType::f32;
  std::vector<std::int64_t> chunks = {};  // step sizes, used in turn; empty: one step
  std::vector<std::int64_t> tap_boundaries = {};
  std::vector<std::int32_t> positions = {};  // whose logits are wanted; empty: all
  StepForm form = {};
};
ForwardRun run_forward(const Transformer& model, std::span<const std::int32_t> tokens,
                       const ForwardOptions& options = {});

// K and V of positions [0, length) of a sequence, all layers.
std::vector<std::byte> read_kv(Device& device, const KvCache& cache, SequenceId sequence, std::int64_t length);

}  // namespace espalier::testing

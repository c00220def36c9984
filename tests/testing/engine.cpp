#include "testing/engine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/testing/judged_device.h"
#include "device/checked/checked_device.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/named_device.h"
#include "device/reference/reference_device.h"
#include "format/gguf.h"
#include "format/safetensors.h"

namespace espalier::testing {
namespace {

std::unique_ptr<Device> reference(int threads) {
  return make_reference_device(threads);
}
std::unique_ptr<Device> cpu(int threads) {
  return make_cpu_device({.threads = threads});
}
std::unique_ptr<Device> checked(int threads) {
  return make_checked_device(make_reference_device(threads), {});
}
std::unique_ptr<Device> checked_ascend(int threads) {
  return make_checked_device(make_reference_device(threads), {.profile = CheckedProfile::ascend});
}
std::unique_ptr<Device> gpu(int) {
  return cuda::make_device();
}
std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}
std::unique_ptr<Device> judged(int threads) {
  return make_named_device(*judged_device(), {.threads = threads,
                                              .ascend = {.home = variable("ASCEND_HOME_PATH"),
                                                         .library = variable("ESPALIER_ASCEND_LIBRARY")}});
}

template <typename T>
std::vector<T> read_golden(const std::filesystem::path& file, const std::string& name, DType type) {
  const Safetensors golden(file);
  const TensorInfo* info = golden.find(name);
  if (!info || info->type != type) throw InputError(file.string() + ": no tensor " + name);
  std::vector<T> values(info->bytes.size() / sizeof(T));
  std::memcpy(values.data(), info->bytes.data(), info->bytes.size());
  return values;
}

void append(std::vector<float>& to, Device& device, ConstView from) {
  if (from.empty()) return;
  const std::size_t old = to.size();
  to.resize(old + static_cast<std::size_t>(from.elements()));
  download<float>(device, from, std::span(to).subspan(old));
}

}  // namespace

std::filesystem::path data_path(const std::string& name) {
  const char* const moved = std::getenv("ESPALIER_TEST_DATA");
  return std::filesystem::path(moved == nullptr ? ESPALIER_TEST_DATA : moved) / name;
}

std::filesystem::path default_model() {
  return std::filesystem::path(ESPALIER_MODELS) / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::vector<std::string> tiny_families() {
  return {"llama2", "llama3", "mistral", "smollm2", "qwen2", "qwen3", "pangu1b", "pangu7b"};
}

std::vector<NamedDevice> all_devices() {
  if (const auto kind = judged_kind()) return {{*kind, judged}};
  std::vector<NamedDevice> devices = {
      {"reference", reference}, {"cpu", cpu}, {"checked", checked}, {"checked_ascend", checked_ascend}};
  for (const NamedDevice& device : gpu_devices()) devices.push_back(device);
  return devices;
}

std::vector<NamedDevice> gpu_devices() {
  if (const auto kind = judged_kind()) return kind == "cuda" ? all_devices() : std::vector<NamedDevice>();
  if (cuda::list_devices().problem.empty()) return {{"cuda", gpu}};
  return {};
}

std::vector<float> golden_floats(const std::filesystem::path& file, const std::string& tensor) {
  return read_golden<float>(file, tensor, DType::f32);
}

std::vector<std::int32_t> golden_tokens(const std::filesystem::path& file, const std::string& tensor) {
  const auto wide = read_golden<std::int64_t>(file, tensor, DType::i64);
  return {wide.begin(), wide.end()};
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  check(a.size() == b.size(), "{} values against {}", a.size(), b.size());
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

double largest_relative_difference(std::span<const float> a, std::span<const float> b) {
  check(a.size() == b.size(), "{} values against {}", a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(double{a[i]} / double{b[i]} - 1));
  return largest;
}

Transformer load_changed(Device& device, const std::filesystem::path& path, WeightMode mode,
                         const std::function<void(ModelConfig&)>& change) {
  ModelConfig config = load_config(path);
  change(config);
  const bool folder = std::filesystem::is_directory(path);
  ModelWeights weights = folder ? load_weights(device, config, Safetensors(path), TensorNaming::hugging_face, mode, {})
                                : load_weights(device, config, Gguf(path), TensorNaming::gguf, mode, {});
  return Transformer(device, std::move(config), std::move(weights));
}

std::vector<std::byte> read_kv(Device& device, const KvCache& cache, SequenceId sequence, std::int64_t length) {
  std::vector<std::byte> all;
  for (std::int64_t layer = 0; layer < cache.memory().shape().layers; ++layer)
    for (const View& memory : {cache.memory().layer(layer).k, cache.memory().layer(layer).v}) {
      const View slots = memory.reshaped({memory.dim(0) * memory.dim(1), memory.dim(2), memory.dim(3)});
      for (std::int64_t p = 0; p < length; ++p) {
        const View slot = slots.rows(cache.slot(sequence, p), 1);
        const std::size_t old = all.size();
        all.resize(old + static_cast<std::size_t>(slot.bytes_spanned()));
        device.download(slot, std::span(all).subspan(old));
      }
    }
  return all;
}

ForwardRun run_forward(const Transformer& model, std::span<const std::int32_t> tokens, const ForwardOptions& options) {
  Device& device = model.device();
  const auto total = static_cast<std::int64_t>(tokens.size());
  const std::int64_t longest = options.chunks.empty() ? total : std::min(total, std::ranges::max(options.chunks));
  const std::int64_t most = largest_step(device, longest);
  KvCache cache(device, model.kv_shape(options.kv_type), total);
  Workspace workspace(model, cache.memory(),
                      {.rows = most,
                       .outputs = most,
                       .positions = total,
                       .tap_boundaries = options.tap_boundaries,
                       .form = options.form});
  const SequenceId sequence = cache.create();
  ForwardRun run;
  std::size_t chunk = 0;
  for (std::int64_t begin = 0; begin < total;) {
    const std::int64_t wanted = options.chunks.empty() ? total : options.chunks[chunk++ % options.chunks.size()];
    const std::int64_t end = std::min({total, begin + wanted, begin + most});
    std::optional<Branch> branch = cache.begin(sequence, end - begin);
    check(branch.has_value(), "no room");
    std::vector<Row> rows;
    for (std::int64_t p = begin; p < end; ++p) {
      rows.push_back(model.prefill_row(branch->id(), p, tokens[static_cast<std::size_t>(p)]));
      rows.back().wants_logits =
          options.positions.empty() || std::ranges::find(options.positions, p) != options.positions.end();
      rows.back().wants_taps = !options.tap_boundaries.empty();
    }
    const StepOutput output = model.forward(rows, workspace);
    append(run.logits, device, output.logits);
    append(run.hidden, device, output.hidden);
    append(run.taps, device, output.taps);
    branch->commit_length(end - begin);
    begin = end;
  }
  run.kv = read_kv(device, cache, sequence, total);
  return run;
}

}  // namespace espalier::testing

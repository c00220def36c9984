#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>

#include "base/error.h"
#include "base/math.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

constexpr double kDefaultTheta = 10000.0;

// theta^(-2i/d), rounded to float once.
std::vector<float> plain_frequencies(double theta, std::int64_t head_size) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head_size / 2; ++i)
    frequencies.push_back(
        static_cast<float>(pow_f64(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size))));
  return frequencies;
}

void scale_linear(double factor, std::vector<float>& frequencies) {
  for (float& frequency : frequencies) frequency = static_cast<float>(frequency / factor);
}

struct Llama3Scaling {
  double factor, low, high, original_context;
};

// Long wavelengths are stretched by the factor, short ones kept, those between blended (Llama 3.1).
void scale_llama3(const Llama3Scaling& scaling, std::vector<float>& frequencies) {
  for (float& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < scaling.original_context / scaling.high) continue;
    double scaled = frequency / scaling.factor;
    if (wavelength <= scaling.original_context / scaling.low) {
      const double smooth = (scaling.original_context / wavelength - scaling.low) / (scaling.high - scaling.low);
      scaled = (1 - smooth) * frequency / scaling.factor + smooth * frequency;
    }
    frequency = static_cast<float>(scaled);
  }
}

Llama3Scaling read_llama3_scaling(const JsonFields& rope) {
  const Llama3Scaling scaling{rope.require_number("factor"), rope.require_number("low_freq_factor"),
                              rope.require_number("high_freq_factor"),
                              rope.require_number("original_max_position_embeddings")};
  if (scaling.low >= scaling.high)
    input_error("{}: low_freq_factor {}: expected less than high_freq_factor {}", rope.file(), scaling.low,
                scaling.high);
  return scaling;
}

// YaRN (arXiv 2309.00071) as transformers computes it: waves that turn `slow` times or less within the original context
// are stretched by the factor, those that turn `fast` times or more are kept, those between blended by their number.
struct YarnScaling {
  double factor = 1, original_context = 0, fast = 32, slow = 1;
  bool whole = true;  // the ends of the blend are whole numbers
};

// The number of the frequency that turns so often within the original context.
double number_of_wave(double turns, const YarnScaling& scaling, double theta, double head_size) {
  return head_size * log_f64(scaling.original_context / (turns * 2 * std::numbers::pi)) / (2 * log_f64(theta));
}

void scale_yarn(const YarnScaling& scaling, double theta, std::int64_t head_size, std::vector<float>& frequencies) {
  const auto size = static_cast<double>(head_size);
  double low = number_of_wave(scaling.fast, scaling, theta, size);
  double high = number_of_wave(scaling.slow, scaling, theta, size);
  if (scaling.whole) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double frequency = frequencies[i];
    frequencies[i] = static_cast<float>(frequency / scaling.factor * stretched + frequency * (1 - stretched));
  }
}

double yarn_amplitude(double factor, double scale = 1) {
  return factor <= 1 ? 1 : 0.1 * scale * log_f64(factor) + 1;
}

void check_yarn(const YarnScaling& scaling, double theta, std::string_view file) {
  if (!(theta > 1)) input_error("{}: rope_theta {}: expected more than 1 with rope of type yarn", file, theta);
  if (scaling.factor < 1) input_error("{}: factor: expected 1 or more, got {}", file, scaling.factor);
  if (scaling.slow > scaling.fast)
    input_error("{}: beta_slow {}: expected at most beta_fast {}", file, scaling.slow, scaling.fast);
}

// Angles that cosine and sine can take, of any position.
void check_rope(const Rope& rope, std::string_view file) {
  constexpr float kMost = 1 << 4;  // times 2^26 positions
  for (float frequency : rope.inverse_frequencies)
    if (!(frequency >= 0 && frequency <= kMost))
      input_error("{}: rope: expected angles of 0 to {} a position, got {}", file, kMost, frequency);
  if (!std::isnormal(rope.amplitude) || rope.amplitude < 0)
    input_error("{}: rope: expected an amplitude above 0 that float32 holds, got {}", file, rope.amplitude);
}

YarnScaling read_yarn_scaling(const JsonFields& fields, const JsonFields& rope) {
  YarnScaling scaling{.factor = rope.require_number("factor")};
  const auto original = rope.number("original_max_position_embeddings");
  const auto context = original ? original : fields.number("max_position_embeddings");
  if (!context)
    input_error("{}: rope type yarn: original_max_position_embeddings is missing, and max_position_embeddings too",
                rope.file());
  scaling.original_context = *context;
  scaling.fast = rope.number("beta_fast").value_or(scaling.fast);
  scaling.slow = rope.number("beta_slow").value_or(scaling.slow);
  scaling.whole = rope.boolean("truncate", true);
  return scaling;
}

double read_yarn_amplitude(const JsonFields& rope, double factor) {
  if (rope.find("attention_factor")) return rope.factor("attention_factor");
  const auto scale = rope.number("mscale"), over_all = rope.number("mscale_all_dim");
  if (scale && over_all) return yarn_amplitude(factor, *scale) / yarn_amplitude(factor, *over_all);
  return yarn_amplitude(factor);
}

// llama.cpp stores llama3 scaling as a tensor of divisors.
void divide_by_rope_factors(const Gguf& gguf, std::vector<float>& frequencies) {
  const TensorInfo* factors = gguf.find("rope_freqs.weight");
  if (!factors) return;
  if (factors->type != DType::f32 || factors->bytes.size() != frequencies.size() * sizeof(float))
    input_error("{}: rope_freqs.weight: expected f32 [{}]", gguf.description(), frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    float factor;
    std::memcpy(&factor, factors->bytes.data() + i * sizeof factor, sizeof factor);
    if (!(factor > 0) || !std::isfinite(factor))
      input_error("{}: rope_freqs.weight: element {}: expected a positive number, got {}", gguf.description(), i,
                  factor);
    frequencies[i] = frequencies[i] / factor;
  }
}

// Plain frequencies, and what they belong to.
struct PlainRope {
  double theta = 0;
  std::int64_t head_size = 0;
  bool of_head = false;
};

// What a type of scaling makes of them.
void scale(const std::string& type, const JsonFields& fields, const JsonFields& scaling, const PlainRope& plain,
           Rope& rope) {
  if (type == "linear") {
    scale_linear(scaling.require_number("factor"), rope.inverse_frequencies);
  } else if (type == "llama3") {
    scale_llama3(read_llama3_scaling(scaling), rope.inverse_frequencies);
  } else if (type == "yarn" && plain.of_head) {
    const YarnScaling yarn = read_yarn_scaling(fields, scaling);
    check_yarn(yarn, plain.theta, fields.file());
    scale_yarn(yarn, plain.theta, plain.head_size, rope.inverse_frequencies);
    rope.amplitude = static_cast<float>(read_yarn_amplitude(scaling, yarn.factor));
  } else if (type == "dynamic" && plain.of_head) {
    if (const double factor = scaling.require_number("factor"); factor < 1)
      input_error("{}: factor: expected 1 or more, got {}", fields.file(), factor);
  } else {
    input_error("{}: rope type {} is not supported, expected default, linear{} or llama3", fields.file(), type,
                plain.of_head ? ", dynamic, yarn" : "");
  }
}

void scale(const std::string& type, const GgufFields& fields, const PlainRope& plain, Rope& rope) {
  if (type == "none") return;
  if (type == "linear") {
    scale_linear(fields.require_number("rope.scaling.factor"), rope.inverse_frequencies);
  } else if (type == "yarn" && plain.of_head) {
    YarnScaling yarn{.factor = fields.require_number("rope.scaling.factor"),
                     .original_context = fields.require_number("rope.scaling.original_context_length")};
    yarn.fast = fields.number("rope.scaling.yarn_beta_fast").value_or(yarn.fast);
    yarn.slow = fields.number("rope.scaling.yarn_beta_slow").value_or(yarn.slow);
    check_yarn(yarn, plain.theta, fields.gguf().description());
    scale_yarn(yarn, plain.theta, plain.head_size, rope.inverse_frequencies);
    // llama.cpp multiplies the amplitude with a factor of its own.
    const double own = fields.number("rope.scaling.yarn_attn_factor").value_or(1);
    rope.amplitude = static_cast<float>(own * yarn_amplitude(yarn.factor));
  } else {
    input_error("{}: rope.scaling.type {} is not supported, expected none{}", fields.gguf().description(), type,
                plain.of_head ? ", linear or yarn" : " or linear");
  }
}

void refuse_partial_rotation(const JsonFields& fields) {
  if (const auto part = fields.number("partial_rotary_factor"); part && *part != 1.0)
    input_error("{}: partial_rotary_factor = {}: partial rotation is not supported", fields.file(), *part);
}

}  // namespace

// Classic files have rope_theta and rope_scaling beside the other fields; newer ones have one object rope_parameters.
Rope read_rope(const JsonFields& fields, std::int64_t head_size, const RopeReading& reading) {
  const Json* parameters = fields.find("rope_parameters");
  const Json* scaling = parameters ? parameters : fields.find("rope_scaling");
  std::optional<double> said = fields.number("rope_theta");
  std::string type = "default";
  refuse_partial_rotation(fields);
  if (scaling) {
    const JsonFields rope(*scaling, fields.file());
    if (const auto inner = rope.number("rope_theta")) said = inner;
    type = rope.string("rope_type").value_or(rope.string("type").value_or("default"));
    refuse_partial_rotation(rope);
  }
  const PlainRope plain{reading.theta.value_or(said.value_or(kDefaultTheta)), head_size, reading.of_head};
  Rope rope{.inverse_frequencies = plain_frequencies(plain.theta, head_size)};
  if (type != "default") scale(type, fields, JsonFields(*scaling, fields.file()), plain, rope);
  check_rope(rope, fields.file());
  return rope;
}

Rope read_rope(const GgufFields& fields, std::int64_t head_size, const RopeReading& reading) {
  const Gguf& gguf = fields.gguf();
  if (const auto dims = fields.integer("rope.dimension_count", 1, kMaxWidth); dims && *dims != head_size)
    input_error("{}: rope.dimension_count {}: expected the head size {}", gguf.description(), *dims, head_size);
  const double theta = reading.theta.value_or(fields.number("rope.freq_base").value_or(kDefaultTheta));
  const PlainRope plain{theta, head_size, reading.of_head};
  Rope rope{.inverse_frequencies = plain_frequencies(theta, head_size)};
  divide_by_rope_factors(gguf, rope.inverse_frequencies);
  if (const std::string* type = fields.string("rope.scaling.type")) scale(*type, fields, plain, rope);
  check_rope(rope, gguf.description());
  return rope;
}

}  // namespace espalier

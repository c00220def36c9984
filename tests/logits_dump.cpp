// Writes the logits of given token sequences as raw floats, for train/fixtures/compare_smollm2.py.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "decode/batch.h"
#include "device/reference/reference_device.h"

namespace {

using namespace espalier;

void dump(const Transformer& model, const std::string& tokens_file, const std::string& out_file, DType kv_type) {
  std::ifstream in(tokens_file);
  if (!in) input_error("{}: cannot open", tokens_file);
  std::ofstream out(out_file, std::ios::binary);
  Batch decoder(
      model, {.context = std::min<std::int64_t>(model.config().context, 2048), .kv_type = kv_type, .scored_rows = 64});
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line);
    const auto tokens = record.at("tokens").get<std::vector<std::int32_t>>();
    const auto from = record.value("from", std::int64_t{0});
    decoder.score(tokens, [&](std::int64_t position, std::span<const float> logits) {
      if (position >= from)
        out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
    });
  }
  out.flush();
  if (!out) device_error("{}: cannot write", out_file);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("writes logits as raw float32");
  std::string model_path, weights = "file", tokens, out, kv = "f32";
  int threads = 2;
  app.add_option("--model", model_path)->required();
  app.add_option("--weights", weights)->check(CLI::IsMember({"file", "f32", "q8_0"}));
  app.add_option("--tokens", tokens)->required();
  app.add_option("--out", out)->required();
  app.add_option("--kv", kv)->check(CLI::IsMember({"f16", "bf16", "f32"}));
  app.add_option("--threads", threads);
  CLI11_PARSE(app, argc, argv);
  try {
    const auto device = make_reference_device(threads);
    const WeightMode mode = weights == "f32"    ? WeightMode::f32
                            : weights == "q8_0" ? WeightMode::q8_0
                                                : WeightMode::stored;
    const Transformer model = load_transformer(*device, model_path, {.weights = mode});
    dump(model, tokens, out, *parse_dtype(kv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "logits_dump: %s\n", error.what());
    return 1;
  }
}

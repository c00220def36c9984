// The weights of a decoder on a device: immutable, shared by every sequence. Read from any TensorSource under the names
// of Hugging Face or of GGUF; every tensor is checked for shape and type, missing and unknown names are errors.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"
#include "format/tensor_info.h"
#include "model/config.h"
#include "model/teacher_rows.h"
#include "model/weight_reader.h"

namespace espalier {

// Called after each layer with the share of the work done, 0 to 1.
using Progress = std::function<void(double)>;

struct LayerWeights {
  Tensor attention_norm;  // [hidden]
  std::unique_ptr<const Weight> q, k, v;
  Tensor q_bias, k_bias, v_bias;  // empty unless qkv_bias
  Tensor q_norm, k_norm;          // [head_size]; empty unless qk_norm
  std::unique_ptr<const Weight> output;
  Tensor output_bias;                     // empty unless output_bias
  Tensor mlp_norm;                        // [hidden]
  std::unique_ptr<const Weight> gate_up;  // [2 * intermediate, hidden], gate first
  std::unique_ptr<const Weight> down;
};

struct ModelWeights {
  std::unique_ptr<const Weight> embedding;  // [vocabulary, hidden]
  std::vector<LayerWeights> layers;
  Tensor final_norm;
  std::unique_ptr<const Weight> output;  // null when tied
  // The coarsest types that their values went through.
  DType embedding_precision = DType::f32, output_precision = DType::f32;
  bool float_linears = false;  // one of the matrices that rows are multiplied with is in floats

  const Weight& output_matrix() const { return output ? *output : *embedding; }
  TeacherMatrix known_embedding() const { return {embedding.get(), embedding_precision}; }
  TeacherMatrix known_output() const { return {&output_matrix(), output_precision}; }
};

enum class TensorNaming { hugging_face, gguf };

ModelWeights load_weights(Device& device, const ModelConfig& config, const TensorSource& source, TensorNaming naming,
                          WeightMode mode, const Progress& progress);

}  // namespace espalier

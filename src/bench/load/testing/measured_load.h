// What a load benchmark may have measured: for tests of what is made of it.
#pragma once

#include "bench/load/load_benchmark.h"

namespace espalier {

inline LoadFigures load_figures(double scale) {
  LoadFigures made{.tokens_per_second = {10 * scale, 12 * scale, 11 * scale}, .requests = 48, .tokens = 6144};
  made.first_token = {48, 0.1 * scale, 9.5 * scale, 12345.6, 20000};
  made.gaps = {{6096, 0.01, 0.02, 0.03, 0.4}, {6096, 0.005, 0.01, 12.5, 99}};
  return made;
}

inline LoadResult load_of_two_servers() {
  LoadResult result;
  result.plan.targets = {{.url = {"127.0.0.1", 8080}, .speculation = "none", .model = "tiny", .owner = "espalier"},
                         {.url = {"some-host-with-a-name.example", 65535, "/with/a/prefix"},
                          .model = "/models/with-a-long-name/and-a-longer-one/SmolLM2-135M-Instruct.Q4_1.gguf",
                          .owner = "llamacpp\x1b[31m"}};
  result.plan.shapes = {{.users = 1}, {.users = 64}};
  for (const LoadShape& shape : result.plan.shapes)
    result.shapes.push_back({.shape = shape, .figures = {load_figures(shape.users), load_figures(0.5 * shape.users)}});
  return result;
}

// A long prompt arrived at the first server, in the first load.
inline LoadResult interrupted_load() {
  LoadResult result = load_of_two_servers();
  result.plan.settings.interrupt_tokens = 4000;
  InterruptFigures interrupts{.prompts = 1, .prompt_tokens = 4012.3};
  interrupts.first_token = {1, 12.3, 12.3, 12.3, 12.3};
  interrupts.calm = interrupts.disturbed = load_figures(1).gaps;
  result.shapes[0].figures[0].interrupts = interrupts;
  return result;
}

}  // namespace espalier

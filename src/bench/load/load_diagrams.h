// What the load benchmark measured, as lines to draw: plain values, for whoever draws them. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/load/load_benchmark.h"

namespace espalier {

struct LoadPoint {
  std::size_t category = 0;  // of the diagram
  double value = 0;
  std::optional<Spread> spread = {};  // over rounds
  std::string note = {};              // of what it was made
};

struct LoadLine {
  std::string name = {};  // the server, and what of it
  std::vector<LoadPoint> points = {};
};

struct LoadDiagram {
  std::string id = {};  // a-z, 0-9 and hyphens; no two alike
  std::string title = {};
  std::string unit = {};  // of the values
  std::string axis = {};  // what the categories are
  std::vector<std::string> categories = {};
  std::vector<LoadLine> lines = {};
};

// Over the loads: speed, first tokens, gaps; or, where long prompts arrived, the users' silences. Those that have
// something to show.
std::vector<LoadDiagram> load_diagrams(const LoadResult& result);

}  // namespace espalier

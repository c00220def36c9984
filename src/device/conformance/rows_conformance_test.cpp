// The ops that treat each row by itself: embed, rms_norm, rope, swiglu, silu, add, gather_rows, argmax, top_k,
// log_sum_exp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/blocks.h"
#include "device/conformance/conformance.h"

namespace espalier {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> as_floats(const std::vector<std::int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

// Values with ties, zeros of both signs, subnormals, and now and then a NaN or an infinity.
std::vector<float> awkward_values(RandomValues& random, std::int64_t n) {
  constexpr float kAwkward[] = {0.0f, -0.0f, 1.0f, 1.0f, -1.0f, 1e-42f, -1e-42f, 3e38f, kInfinity, -kInfinity, kNan};
  std::vector<float> values = random.values(n);
  for (float& x : values)
    if (random.one_in(6)) x = kAwkward[random.below(std::size(kAwkward))];
  return values;
}

// Of an output of rms_norm: roundings of a sum of squares, which is divided, and of three products.
double norm_bound(std::span<const float> x, const std::vector<float>& w, std::int64_t i) {
  double squares = 0;
  for (float value : x) squares += double{value} * value;
  const double y = std::fabs(x[static_cast<std::size_t>(i)] * w[static_cast<std::size_t>(i)]) /
                   std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  return bound_unless_strange(x, 2 * static_cast<double>(x.size() + 8) * kRounding * y + 0x1p-140);
}

// Of silu(a) * b: the contract's exponential is 0 or infinite where the true one is not quite.
double silu_bound(float a, float b) {
  const double silu = a / (1 + std::exp(-double{a}));
  const float both[] = {a, b};
  return bound_unless_strange(both,
                              std::fabs(silu * b) * 16 * kRounding + std::fabs(double{a} * b) * 0x1p-124 + 0x1p-140);
}

class RowsConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  // Runs the check for every row count of the device and every width, with ordinary and awkward values in turn.
  void for_each_shape(std::span<const std::int64_t> widths,
                      const std::function<void(std::int64_t rows, std::int64_t width, bool awkward)>& check_shape) {
    bool awkward = false;
    std::size_t i = 0;
    for (std::int64_t rows : test_.row_counts())
      for (int repeat = 0; repeat < 3; ++repeat) {
        const std::int64_t width = widths[i++ % widths.size()];
        SCOPED_TRACE(testing::Message() << "width " << width << (awkward ? ", awkward values" : ""));
        check_shape(rows, width, awkward);
        awkward = !awkward;
      }
  }
  // Bounds of outputs that depend on `width` inputs of their own row each; bound: of one, from the row's inputs.
  static RowBounds bounds_by_row(const std::vector<float>& x, std::int64_t width, std::int64_t outputs,
                                 std::function<double(std::span<const float> row, std::int64_t output)> bound) {
    return [=, &x](const std::vector<std::int64_t>& rows) {
      std::vector<double> bounds;
      for (std::int64_t r : rows)
        for (std::int64_t i = 0; i < outputs; ++i)
          bounds.push_back(
              bound(std::span(x).subspan(static_cast<std::size_t>(r * width), static_cast<std::size_t>(width)), i));
      return bounds;
    };
  }
  std::vector<float> values(std::int64_t n, bool awkward) {
    return awkward ? awkward_values(random_, n) : random_.values(n);
  }

  DeviceTest test_{GetParam()};
  RandomValues random_{11};
};

INSTANTIATE_TEST_SUITE_P(Devices, RowsConformance, testing::ValuesIn(devices_under_test()), NameOfDevice());

TEST_P(RowsConformance, Embed) {
  for (DType type : kLinearTypes) {
    const std::int64_t width = is_float(type) ? 97 : 2 * traits(type).block_elements;
    const std::int64_t vocabulary = 37;
    const std::vector<std::byte> bytes = random_.weight(type, vocabulary, width);
    const std::int64_t rows = test_.row_count(17);
    const std::vector<std::int32_t> tokens = [&] {
      std::vector<std::int32_t> ids;
      for (std::int64_t i = 0; i < rows; ++i) ids.push_back(static_cast<std::int32_t>(random_.below(vocabulary)));
      ids.front() = 0;
      ids.back() = static_cast<std::int32_t>(vocabulary - 1);
      return ids;
    }();
    SCOPED_TRACE(testing::Message() << name(type));
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const WeightPart part{type, vocabulary, width, bytes};
          const auto table = device.load_weight({&part, 1});
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor token = place(device, DType::i32, select_rows(tokens, which, 1), 1, placement);
          const PlacedTensor y(device, DType::f32, count, width, placement);
          device.embed(*table, token.view().reshaped({count}), y);
          return y.values<float>();
        },
        rows, false,
        [&](const std::vector<std::int64_t>& which) {
          // Block formats may be kept as f16.
          std::vector<double> bounds;
          std::vector<float> row(static_cast<std::size_t>(width));
          const auto size = static_cast<std::size_t>(row_bytes(type, width));
          for (std::int64_t r : which) {
            const auto id = static_cast<std::size_t>(tokens[static_cast<std::size_t>(r)]);
            widen_row(type, std::span(bytes).subspan(id * size, size), row);
            for (float w : row) bounds.push_back(is_float(type) ? 0.0 : std::fabs(w) * 0x1p-11 + 0x1p-25);
          }
          return bounds;
        });
  }
}

TEST_P(RowsConformance, RmsNorm) {
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t dim, bool awkward) {
    const std::vector<float> x = values(rows * dim, awkward), w = random_.values(dim);
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor y(device, DType::f32, count, dim, placement);
          device.rms_norm(place(device, DType::f32, select_rows(x, which, dim), count, placement),
                          place(device, DType::f32, w, 1, placement).view().reshaped({dim}), 1e-5f, y);
          return y.values<float>();
        },
        rows, false,
        bounds_by_row(x, dim, dim, [&](std::span<const float> row, std::int64_t i) { return norm_bound(row, w, i); }));
  });
}

TEST_P(RowsConformance, RmsNormOfEachHead) {
  const std::int64_t heads = 3;
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t dim, bool awkward) {
    const std::vector<float> x = values(rows * heads * dim, awkward), w = random_.values(dim);
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor input = place(device, DType::f32, select_rows(x, which, heads * dim), count, placement);
          const PlacedTensor y(device, DType::f32, count, heads * dim, placement);
          device.rms_norm(input.view().reshaped({count, heads, dim}),
                          place(device, DType::f32, w, 1, placement).view().reshaped({dim}), 1e-5f,
                          y.view().reshaped({count, heads, dim}));
          return y.values<float>();
        },
        rows, false, bounds_by_row(x, heads * dim, heads * dim, [&](std::span<const float> row, std::int64_t i) {
          const auto size = static_cast<std::size_t>(dim);
          return norm_bound(row.subspan(static_cast<std::size_t>(i) / size * size, size), w, i % dim);
        }));
  });
}

TEST_P(RowsConformance, Rope) {
  constexpr std::int64_t kHalves[] = {1, 5, 8, 31, 32, 48, 64};
  const std::int64_t heads = 3, positions = 19;
  for_each_shape(kHalves, [&](std::int64_t rows, std::int64_t half, bool awkward) {
    const std::int64_t width = heads * 2 * half;
    const std::vector<float> x = values(rows * width, awkward);
    const std::vector<float> cosine = random_.values(positions * half), sine = random_.values(positions * half);
    std::vector<std::int32_t> position;
    for (std::int64_t r = 0; r < rows; ++r) position.push_back(static_cast<std::int32_t>((r * 7 + 18) % positions));
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor y = place(device, DType::f32, select_rows(x, which, width), count, placement);
          const PlacedTensor p = place(device, DType::i32, select_rows(position, which, 1), 1, placement);
          device.rope(y.view().reshaped({count, heads, 2 * half}), p.view().reshaped({count}),
                      place(device, DType::f32, cosine, positions, placement),
                      place(device, DType::f32, sine, positions, placement));
          return y.values<float>();
        },
        rows, false, bounds_by_row(x, width, width, [&](std::span<const float> row, std::int64_t i) {
          // Two products, of numbers up to 4 by up to 4, and their sum.
          const auto other = static_cast<std::size_t>(i % (2 * half) < half ? i + half : i - half);
          const float both[] = {row[static_cast<std::size_t>(i)], row[other]};
          return bound_unless_strange(both, 4 * kRounding * 4 * (std::fabs(both[0]) + std::fabs(both[1])) + 0x1p-140);
        }));
  });
}

TEST_P(RowsConformance, Swiglu) {
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t width, bool awkward) {
    std::vector<float> x = values(rows * 2 * width, awkward);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 40;  // both ends of the exponential
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor y(device, DType::f32, count, width, placement);
          device.swiglu(place(device, DType::f32, select_rows(x, which, 2 * width), count, placement), y);
          return y.values<float>();
        },
        rows, false, bounds_by_row(x, 2 * width, width, [=](std::span<const float> row, std::int64_t i) {
          return silu_bound(row[static_cast<std::size_t>(i)], row[static_cast<std::size_t>(i + width)]);
        }));
  });
}

TEST_P(RowsConformance, Silu) {
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t width, bool awkward) {
    std::vector<float> x = values(rows * width, awkward);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 40;  // both ends of the exponential
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor y = place(device, DType::f32, select_rows(x, which, width), count, placement);
          device.silu(y);
          return y.values<float>();
        },
        rows, false, bounds_by_row(x, width, width, [](std::span<const float> row, std::int64_t i) {
          return silu_bound(row[static_cast<std::size_t>(i)], 1);
        }));
  });
}

TEST_P(RowsConformance, Add) {
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t width, bool awkward) {
    const std::vector<float> x = values(rows * width, awkward), y = values(rows * width, awkward);
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor sum = place(device, DType::f32, select_rows(x, which, width), count, placement);
          device.add(sum, place(device, DType::f32, select_rows(y, which, width), count, placement));
          return sum.values<float>();
        },
        rows, false);
  });
}

TEST_P(RowsConformance, GatherRows) {
  const std::int64_t source_rows = 23;
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t width, bool awkward) {
    const std::vector<float> x = values(source_rows * width, awkward);
    std::vector<std::int32_t> index;
    for (std::int64_t r = 0; r < rows; ++r) index.push_back(static_cast<std::int32_t>((r * 5 + 22) % source_rows));
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor y(device, DType::f32, count, width, placement);
          const Placement dense{placement.offset_bytes, 0};
          device.gather_rows(place(device, DType::f32, x, source_rows, dense),
                             place(device, DType::i32, select_rows(index, which, 1), 1, dense).view().reshaped({count}),
                             y);
          return y.values<float>();
        },
        rows, true);
  });
}

TEST_P(RowsConformance, Argmax) {
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t width, bool awkward) {
    const std::vector<float> x = values(rows * width, awkward);
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor id(device, DType::i32, 1, count, {placement.offset_bytes, 0});
          device.argmax(place(device, DType::f32, select_rows(x, which, width), count, placement),
                        id.view().reshaped({count}));
          return as_floats(id.values<std::int32_t>());
        },
        rows, true);
  });
}

TEST_P(RowsConformance, TopK) {
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t width, bool awkward) {
    const std::vector<float> x = values(rows * width, awkward);
    const std::int64_t k = random_.between(1, width);
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const Placement dense{placement.offset_bytes, 0};
          const PlacedTensor value(device, DType::f32, count, k, dense), id(device, DType::i32, count, k, dense);
          device.top_k(place(device, DType::f32, select_rows(x, which, width), count, placement), value, id);
          std::vector<float> rows_of_both;
          const std::vector<float> values = value.values<float>(), ids = as_floats(id.values<std::int32_t>());
          for (std::size_t i = 0; i < values.size(); ++i) rows_of_both.insert(rows_of_both.end(), {values[i], ids[i]});
          return rows_of_both;
        },
        rows, true);
  });
}

// Rows that a device may cut into pieces, and more of their best than one piece has.
TEST_P(RowsConformance, ChoicesAmongManyColumns) {
  struct Shape {
    std::int64_t width, k;
  };
  for (const auto& [width, k] : {Shape{2048, 3}, {2049, 40}, {4111, 2060}, {32003, 10}, {30000, 300}}) {
    SCOPED_TRACE(testing::Message() << k << " of " << width);
    const std::int64_t rows = test_.row_count(2);
    const std::vector<float> x = values(rows * width, true), finite = values(rows * width, false);
    const auto on = [&, k = k](Device& device) {
      const PlacedTensor placed = place(device, DType::f32, x, rows), value(device, DType::f32, rows, k),
                         id(device, DType::i32, rows, k), best(device, DType::i32, 1, rows),
                         sum(device, DType::f32, 1, rows);
      device.top_k(placed, value, id);
      device.argmax(placed, best.view().reshaped({rows}));
      device.log_sum_exp(place(device, DType::f32, finite, rows), 7.0f, sum.view().reshaped({rows}));
      std::vector<float> all = value.values<float>();
      for (const PlacedTensor* ids : {&id, &best})
        for (const std::int32_t each : ids->values<std::int32_t>()) all.push_back(static_cast<float>(each));
      if (!test_.exact()) return all;
      const std::vector<float> sums = sum.values<float>();
      all.insert(all.end(), sums.begin(), sums.end());
      return all;
    };
    expect_same_bits(on(test_.tested()), on(test_.judge()));
  }
}

TEST_P(RowsConformance, LogSumExp) {
  for_each_shape(kWidths, [&](std::int64_t rows, std::int64_t width, bool awkward) {
    std::vector<float> x = values(rows * width, awkward);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 40;  // terms that vanish beside the largest
    const float scale = random_.one_in(3) ? 1.0f : 1.0f / (0.1f + std::fabs(random_.value()));
    test_.expect_conforming(
        [&](Device& device, const std::vector<std::int64_t>& which, Placement placement) {
          const auto count = static_cast<std::int64_t>(which.size());
          const PlacedTensor y(device, DType::f32, 1, count, {placement.offset_bytes, 0});
          device.log_sum_exp(place(device, DType::f32, select_rows(x, which, width), count, placement), scale,
                             y.view().reshaped({count}));
          return y.values<float>();
        },
        rows, true, bounds_by_row(x, width, 1, [=](std::span<const float> row, std::int64_t) {
          // What the roundings of a sum of `width` terms do to its logarithm, and those of the result.
          double largest = 0;
          for (float value : row)
            if (std::isfinite(value)) largest = std::max(largest, std::fabs(double{value} * scale));
          return 2 * static_cast<double>(width + 16) * kRounding + 4 * kRounding * largest;
        }));
  });
}

}  // namespace
}  // namespace espalier

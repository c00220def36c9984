#include "serve/http/request_ids.h"

#include <fmt/format.h>

#include <random>

#include "base/random.h"

namespace espalier {
namespace {

std::uint64_t bits_from_system() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

RequestIds::RequestIds() : first_(bits_from_system()), second_(bits_from_system()) {}

std::string RequestIds::next() {
  ++count_;
  return fmt::format("{:016x}{:08x}", mix64(first_ + count_), mix64(second_ + count_) >> 32);
}

}  // namespace espalier

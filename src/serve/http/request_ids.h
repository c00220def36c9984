// Names of requests: 24 hexadecimal digits, different for every request of every server, and telling nothing about
// others. One thread's.
#pragma once

#include <cstdint>
#include <string>

namespace espalier {

class RequestIds {
 public:
  RequestIds();

  std::string next();

 private:
  std::uint64_t first_;
  std::uint64_t second_;
  std::uint64_t count_ = 0;
};

}  // namespace espalier

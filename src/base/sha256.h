// SHA-256 of bytes, as 64 hexadecimal digits.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace espalier {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  // The digest of everything so far; the object cannot be used afterwards.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::span<const std::byte> bytes);

}  // namespace espalier

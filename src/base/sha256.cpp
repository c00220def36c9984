#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace espalier {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1)
    device_error("EVP_DigestInit_ex: SHA-256 is not available");
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  check(state_ != nullptr, "Sha256::update after finish");
  if (EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) != 1) device_error("EVP_DigestUpdate failed");
}

std::string Sha256::finish() {
  check(state_ != nullptr, "Sha256::finish called twice");
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (EVP_DigestFinal_ex(state_->context, digest.data(), &length) != 1) device_error("EVP_DigestFinal_ex failed");
  state_.reset();
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

}  // namespace espalier

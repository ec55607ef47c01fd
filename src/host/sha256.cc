#include "host/sha256.h"

#include <openssl/evp.h>

#include "base/status.h"
#include "host/progress.h"

namespace braid::inline host {

struct Sha256::Context {
  EVP_MD_CTX* state = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(state); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  const int done = EVP_DigestInit_ex(context_->state, EVP_sha256(), nullptr);
  BRAID_CHECK(done == 1, "SHA-256 cannot begin");
}

Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::add(std::string_view bytes) {
  const int done = EVP_DigestUpdate(context_->state, bytes.data(), bytes.size());
  BRAID_CHECK(done == 1, "SHA-256 failed");
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  const int done = EVP_DigestFinal_ex(context_->state, digest, &length);
  BRAID_CHECK(done == 1, "SHA-256 failed");
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (unsigned int i = 0; i < length; ++i) {
    out += kDigits[digest[i] >> 4];
    out += kDigits[digest[i] & 15];
  }
  return out;
}

std::string sha256_hex(std::string_view bytes) {
  constexpr size_t kPiece = size_t{64} << 20;  // a file of weights takes minutes
  Sha256 sum;
  for (size_t begin = 0; begin < bytes.size(); begin += kPiece) {
    sum.add(bytes.substr(begin, kPiece));
    note_progress();
  }
  return sum.hex();
}

}  // namespace braid::inline host

// SHA-256 (FIPS 180-4) of data that comes in pieces. One thread per object.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace braid::inline host {

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void add(std::string_view bytes);
  // 64 hexadecimal digits, as sha256sum prints them. REQUIRES: called once, no add() afterwards.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Of data in one piece.
std::string sha256_hex(std::string_view bytes);

}  // namespace braid::inline host

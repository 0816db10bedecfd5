#include "formats/linnet/sha256.h"

#include <doctest/doctest.h>

#include <span>
#include <string>

namespace linnet::formats {
namespace {

std::string Sha256Text(const std::string& text, size_t part) {
  Sha256 hash;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  for (size_t i = 0; i < bytes.size(); i += part) hash.Update(bytes.subspan(i, std::min(part, bytes.size() - i)));
  return HexText(hash.Finish());
}

TEST_SUITE("formats") {
  TEST_CASE("Sha256: gives the digests of the standard's examples") {
    CHECK(Sha256Text("", 1) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(Sha256Text("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(Sha256Text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(Sha256Text(std::string(1000000, 'a'), 4096) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }

  TEST_CASE("Sha256: does not depend on how the bytes are cut") {
    std::string text;
    for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
    for (size_t length : {55u, 56u, 63u, 64u, 65u, 119u, 120u, 128u, 300u}) {
      CAPTURE(length);
      const std::string head = text.substr(0, length);
      const std::string whole = Sha256Text(head, length);
      for (size_t part : {1u, 3u, 63u, 64u, 65u}) CHECK(Sha256Text(head, part) == whole);
    }
  }
}

}  // namespace
}  // namespace linnet::formats

#include "core/base/parse_double.h"

#include <doctest/doctest.h>

#include <cmath>

namespace linnet {
namespace {

TEST_SUITE("core/base") {
  TEST_CASE("ParseDouble: numbers are the nearest doubles") {
    double value = 0.0;
    REQUIRE(ParseDouble("0.1", &value));
    CHECK(value == 0.1);
    REQUIRE(ParseDouble("-12.5e-3", &value));
    CHECK(value == -12.5e-3);
    REQUIRE(ParseDouble("9007199254740993", &value));  // halfway between two doubles: to the even one
    CHECK(value == 9007199254740992.0);
    REQUIRE(ParseDouble("1.7976931348623157e308", &value));
    CHECK(value == 1.7976931348623157e308);
    REQUIRE(ParseDouble(".5", &value));
    CHECK(value == 0.5);
    REQUIRE(ParseDouble("-inf", &value));
    CHECK((std::isinf(value) && value < 0));
    REQUIRE(ParseDouble("nan", &value));
    CHECK(std::isnan(value));
  }

  TEST_CASE("ParseDouble: anything else is refused and changes nothing") {
    double value = 7.0;
    for (const char* text : {"", " 1", "1 ", "+1", "--1", "1,5", "0x10", "1e", "1.5g", "e5", ".", "1e400", "\t1"}) {
      CAPTURE(text);
      CHECK_FALSE(ParseDouble(text, &value));
    }
    CHECK(value == 7.0);
  }
}

}  // namespace
}  // namespace linnet

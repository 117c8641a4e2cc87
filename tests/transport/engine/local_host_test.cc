#include "transport/engine/local_host.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

TEST(LocalHostTest, ANameWithAnAddressIsTakenVerbatim) {
  EXPECT_EQ(FindLocalHost("127.0.0.1:1234", "", false).value_or(""), "127.0.0.1");
  EXPECT_EQ(FindLocalHost("127.0.0.1", "10.0.0.1", false).value_or(""), "127.0.0.1");
  EXPECT_EQ(FindLocalHost("localhost", "", false).value_or(""), "localhost");
  EXPECT_EQ(FindLocalHost("[::1]:5", "", true).value_or(""), "::1");
}

TEST(LocalHostTest, AnotherNameGivesTheAddressThatIsBoundTo) {
  EXPECT_EQ(FindLocalHost("prefill/0", "10.0.0.1", false).value_or(""), "10.0.0.1");
  EXPECT_EQ(FindLocalHost("", "10.0.0.1", false).value_or(""), "10.0.0.1");
  EXPECT_EQ(FindLocalHost("a.invalid:x", "10.0.0.1", false).value_or(""), "10.0.0.1");
}

// What the interfaces have, the machine says.
TEST(LocalHostTest, ElseAnInterfacesAddressOrAnError) {
  const auto host = FindLocalHost("prefill/0", "", false);
  if (host.ok()) {
    EXPECT_FALSE(host->starts_with("127."));
    EXPECT_EQ(FindLocalHost(*host, "", false).value_or(""), *host);
  } else {
    EXPECT_EQ(host.status().code(), absl::StatusCode::kNotFound);
  }
}

}  // namespace
}  // namespace railhop

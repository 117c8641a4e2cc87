#include "transport/engine/failure_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace railhop {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr TransferRequest kRequest{.opcode = Opcode::kRead, .target_address = 0x70, .length = 8};

TEST(FailureTextTest, NamesTheRequestItsTargetAndWhatToDo) {
  EXPECT_EQ(
      FailureText(TransferError::kRemoteAccess, kRequest, "peer:1", ""),
      "READ of 8 bytes, local address 0x0, remote address 0x70 of peer:1: the remote range is "
      "not inside memory that peer:1 has registered: check the address and the length, and "
      "that its owner has registered all of it, and still has");
}

TEST(FailureTextTest, WhyATargetCouldNotBeOpenedIsForTheTasksThatNeededIt) {
  const std::string trouble = "peer:1 has no data port";
  EXPECT_THAT(FailureText(TransferError::kUnknownTarget, kRequest, "", trouble),
              HasSubstr("of the target: peer:1 has no data port"));
  EXPECT_THAT(FailureText(TransferError::kNotRegistered, kRequest, "x", trouble),
              Not(HasSubstr(trouble)));
}

TEST(FailureTextTest, AnOpcodeThatThereIsNotIsShownAsItIs) {
  TransferRequest request = kRequest;
  request.opcode = static_cast<Opcode>(9);
  EXPECT_THAT(FailureText(TransferError::kInvalidRequest, request, "x", ""),
              HasSubstr("opcode 9 of 8 bytes"));
}

TEST(FailureTextTest, EveryErrorHasAText) {
  for (int error = static_cast<int>(TransferError::kDevice); error <= 0; ++error) {
    EXPECT_THAT(FailureText(static_cast<TransferError>(error), kRequest, "", ""),
                Not(HasSubstr("of the target: unknown")))
        << error;
  }
}

}  // namespace
}  // namespace railhop

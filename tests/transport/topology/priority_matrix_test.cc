#include "transport/topology/priority_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PriorityMatrix Decoded(const std::string& json) {
  absl::StatusOr<PriorityMatrix> matrix = PriorityMatrix::Decode(json);
  EXPECT_TRUE(matrix.ok()) << matrix.status().message();
  return matrix.ok() ? *std::move(matrix) : PriorityMatrix();
}

std::string ErrorOf(const std::string& json) {
  const absl::StatusOr<PriorityMatrix> matrix = PriorityMatrix::Decode(json);
  EXPECT_EQ(matrix.status().code(), absl::StatusCode::kInvalidArgument) << json.substr(0, 100);
  return std::string(matrix.status().message());
}

std::string Selected(const PriorityMatrix& matrix, const char* location, uint32_t retry,
                     uint64_t draw) {
  const std::string* const nic = matrix.Select(location, retry, draw);
  return nic == nullptr ? "none" : *nic;
}

constexpr char kTwoNics[] = R"({"cpu:0":[["mlx5_0"],["mlx5_1"]],"cuda:0":[["mlx5_1"],["mlx5_0"]]})";

TEST(PriorityMatrixTest, DecodesAndEncodesTheSameText) {
  const PriorityMatrix matrix = Decoded(kTwoNics);
  EXPECT_THAT(matrix.nics(), ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_THAT(matrix.rows().at("cuda:0").preferred, ElementsAre("mlx5_1"));
  EXPECT_THAT(matrix.rows().at("cuda:0").available, ElementsAre("mlx5_0"));
  EXPECT_EQ(matrix.Encode(), kTwoNics);
  EXPECT_EQ(PriorityMatrix().Encode(), "{}");
}

TEST(PriorityMatrixTest, IndicesAreByFirstAppearanceOverSortedLocations) {
  // "cpu:1" comes before "cuda:0" and "cuda:10" before "cuda:2", whatever the order of the text.
  const PriorityMatrix matrix = Decoded(
      R"({"cuda:2":[["d"],["a"]],"cuda:10":[["c"],["b"]],"cuda:0":[["b"],[]],"cpu:1":[[],["z","b"]]})");
  EXPECT_THAT(matrix.nics(), ElementsAre("z", "b", "c", "d", "a"));
  EXPECT_EQ(matrix.IndexOf("c"), 2u);
  EXPECT_EQ(matrix.IndexOf("x"), std::nullopt);
}

TEST(PriorityMatrixTest, ANicListedTwiceKeepsItsFirstIndex) {
  EXPECT_THAT(Decoded(R"({"cpu:0":[["a","a"],["a","b"]]})").nics(), ElementsAre("a", "b"));
}

TEST(PriorityMatrixTest, TheFirstAttemptTakesAPreferredNic) {
  const PriorityMatrix matrix = Decoded(R"({"cpu:0":[["a","b"],["c"]]})");
  EXPECT_EQ(Selected(matrix, "cpu:0", 0, 0), "a");
  EXPECT_EQ(Selected(matrix, "cpu:0", 0, 1), "b");
  EXPECT_EQ(Selected(matrix, "cpu:0", 0, 2), "a");
  EXPECT_EQ(Selected(matrix, "cpu:0", 0, UINT64_MAX), "b");
}

TEST(PriorityMatrixTest, WithoutPreferredOnesItTakesAnAvailableOne) {
  const PriorityMatrix matrix = Decoded(R"({"cpu:0":[[],["c","d"]]})");
  EXPECT_EQ(Selected(matrix, "cpu:0", 0, 1), "d");
}

TEST(PriorityMatrixTest, RetriesGoThroughPreferredThenAvailable) {
  const PriorityMatrix matrix = Decoded(R"({"cpu:0":[["a","b"],["c"]]})");
  std::string order;
  for (uint32_t retry = 1; retry <= 7; ++retry) order += Selected(matrix, "cpu:0", retry, 5);
  EXPECT_EQ(order, "abcabca");
  EXPECT_EQ(Selected(matrix, "cpu:0", UINT32_MAX, 0), "c");
}

TEST(PriorityMatrixTest, AnUnknownLocationMeansAllNics) {
  const PriorityMatrix matrix = Decoded(kTwoNics);
  std::set<std::string> seen;
  for (uint64_t draw = 0; draw < 2; ++draw) seen.insert(Selected(matrix, "cpu:9", 0, draw));
  EXPECT_THAT(seen, ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_EQ(Selected(matrix, "*", 2, 0), "mlx5_1");
}

TEST(PriorityMatrixTest, ALocationWithoutNicsMeansAllNics) {
  const PriorityMatrix matrix = Decoded(R"({"cpu:0":[["a"],[]],"cuda:0":[[],[]]})");
  EXPECT_EQ(Selected(matrix, "cuda:0", 0, 0), "a");
}

TEST(PriorityMatrixTest, AListedWildcardIsTakenAtItsWord) {
  const PriorityMatrix matrix = Decoded(R"({"*":[["b"],["a"]],"cpu:0":[["c"],[]]})");
  EXPECT_EQ(Selected(matrix, "cpu:7", 0, 3), "b");
  EXPECT_EQ(Selected(matrix, "cpu:7", 2, 0), "a");
}

TEST(PriorityMatrixTest, WithoutNicsThereIsNone) {
  EXPECT_EQ(Selected(PriorityMatrix(), "*", 0, 0), "none");
  EXPECT_EQ(Selected(Decoded(R"({"cpu:0":[[],[]]})"), "cpu:0", 1, 0), "none");
  EXPECT_THAT(Decoded("{}").nics(), IsEmpty());
}

TEST(PriorityMatrixTest, RefusesWhatIsNoPairOfLists) {
  for (const char* pair : {"[]", "[[]]", "[[],[],[]]", "{}", "null", "\"a\"", "1"}) {
    EXPECT_THAT(ErrorOf(std::string(R"({"cpu:0":)") + pair + "}"), HasSubstr("\"cpu:0\": must be"))
        << pair;
  }
  for (const char* list : {"{}", "\"a\"", "null", "3"}) {
    EXPECT_THAT(ErrorOf(std::string(R"({"cpu:0":[[],)") + list + "]}"),
                HasSubstr("\"cpu:0\": a list of NICs is of type"))
        << list;
  }
  for (const char* nic : {"1", "null", "[\"a\"]"}) {
    EXPECT_THAT(ErrorOf(std::string(R"({"cpu:0":[[)") + nic + "],[]]}"),
                HasSubstr("\"cpu:0\": a NIC is of type"))
        << nic;
  }
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("type array, not object"));
  EXPECT_THAT(ErrorOf("null"), HasSubstr("type null, not object"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("not JSON"));
}

TEST(PriorityMatrixTest, BoundsNamesAndCounts) {
  const std::string longest(256, 'n');
  EXPECT_EQ(Decoded("{\"" + longest + "\":[[\"" + longest + "\"],[]]}").nics().size(), 1u);
  EXPECT_THAT(ErrorOf("{\"" + longest + "x\":[[],[]]}"), HasSubstr("name has 257 bytes"));
  EXPECT_THAT(ErrorOf("{\"\":[[],[]]}"), HasSubstr("name has 0 bytes"));
  EXPECT_THAT(ErrorOf("{\"cpu:0\":[[\"" + longest + "x\"],[]]}"), HasSubstr("257 bytes"));
  EXPECT_THAT(ErrorOf("{\"cpu:0\":[[],[\"\"]]}"), HasSubstr("0 bytes"));
  std::string nics = "\"n\"";
  for (size_t i = 1; i < PriorityMatrix::kMaxNics; ++i) nics += ",\"n" + std::to_string(i) + "\"";
  EXPECT_EQ(Decoded("{\"cpu:0\":[[" + nics + "],[]]}").nics().size(), 1024u);
  EXPECT_THAT(ErrorOf("{\"cpu:0\":[[" + nics + "],[\"more\"]]}"), HasSubstr("more than 1024 NICs"));
}

TEST(PriorityMatrixTest, CreateChecksNamesToo) {
  EXPECT_FALSE(PriorityMatrix::Create({{"cpu:0", {.preferred = {""}, .available = {}}}}).ok());
  EXPECT_FALSE(PriorityMatrix::Create({{"", {.preferred = {"a"}, .available = {}}}}).ok());
  const auto matrix = PriorityMatrix::Create({{"cpu:0", {.preferred = {"a"}, .available = {"b"}}}});
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->Encode(), R"({"cpu:0":[["a"],["b"]]})");
}

}  // namespace
}  // namespace railhop

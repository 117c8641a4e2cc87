#include "transport/engine/stored_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "tests/support/flag.h"
#include "tests/transport/engine/handshake_support.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr char kDescriptor[] = R"({"name":"b","protocol":"tcp","tcp_data_port":7})";

// Keys in memory; the test looks at them and makes calls fail.
class FakeStore final : public MetadataStore {
 public:
  struct Shared {
    std::map<std::string, std::string> values;
    std::vector<std::string> calls;
    absl::Status down;
    std::function<void()> on_put = [] {};
  };
  explicit FakeStore(Shared* shared) : shared_(*shared) {}

  absl::StatusOr<std::string> Get(const std::string& key) override {
    if (!shared_.down.ok()) return shared_.down;
    const auto found = shared_.values.find(key);
    if (found == shared_.values.end()) return absl::NotFoundError("no " + key);
    return found->second;
  }
  absl::Status Put(const std::string& key, const std::string& value) override {
    shared_.calls.push_back("put " + key);
    shared_.on_put();
    if (shared_.down.ok()) shared_.values[key] = value;
    return shared_.down;
  }
  absl::Status Remove(const std::string& key) override {
    shared_.calls.push_back("remove " + key);
    if (shared_.down.ok()) shared_.values.erase(key);
    return shared_.down;
  }

 private:
  Shared& shared_;
};

class StoredMetadataTest : public testing::Test {
 protected:
  std::unique_ptr<StoredMetadata> Make(const std::string& name, const std::string& cluster = "") {
    EngineEnvironment environment = ReadEngineEnvironment([](const char*) { return nullptr; });
    environment.metadata_cluster_id = cluster;
    return std::make_unique<StoredMetadata>(
        std::make_unique<FakeStore>(&store_), environment,
        OwnSegment{.name = name,
                   .listener = {.host = "10.0.0.1", .port = 15000},
                   .descriptor = [this] { return descriptor_; }});
  }

  FakeStore::Shared store_;
  std::string descriptor_ = "{\"n\":1}";
};

TEST_F(StoredMetadataTest, PublishesUnderMooncakesKeysAndTakesThemBack) {
  const auto metadata = Make("a:1");
  ASSERT_TRUE(metadata->Publish().ok());
  EXPECT_THAT(store_.values,
              ElementsAre(Pair("mooncake/ram/a:1", "{\"n\":1}"),
                          Pair("mooncake/rpc_meta/a:1",
                               R"({"ip_or_host_name":"10.0.0.1","rpc_port":15000})")));
  EXPECT_THAT(store_.calls, ElementsAre("put mooncake/rpc_meta/a:1", "put mooncake/ram/a:1"))
      << "who finds the segment must find its engine";
  descriptor_ = "{\"n\":2}";
  store_.calls.clear();
  ASSERT_TRUE(metadata->Publish().ok());
  EXPECT_EQ(store_.values["mooncake/ram/a:1"], "{\"n\":2}");
  EXPECT_THAT(store_.calls, ElementsAre("put mooncake/ram/a:1")) << "the listener stays";
  ASSERT_TRUE(metadata->Withdraw().ok());
  EXPECT_THAT(store_.values, IsEmpty());
}

TEST_F(StoredMetadataTest, KeysOfAClusterAndOfANameThatIsAPath) {
  ASSERT_TRUE(Make("a/b", "blue")->Publish().ok());
  ASSERT_TRUE(Make("c", "red/")->Publish().ok());
  EXPECT_THAT(store_.values, ElementsAre(Pair("mooncake/blue/a/b", testing::_),
                                         Pair("mooncake/blue/rpc_meta/a/b", testing::_),
                                         Pair("mooncake/red/ram/c", testing::_),
                                         Pair("mooncake/red/rpc_meta/c", testing::_)));
}

TEST_F(StoredMetadataTest, FindsSegmentAndListener) {
  const auto metadata = Make("a");
  store_.values["mooncake/ram/b"] = kDescriptor;
  store_.values["mooncake/rpc_meta/b"] = R"({"ip_or_host_name":"fe80::1","rpc_port":9})";
  const auto segment = metadata->Fetch("b", {});
  ASSERT_TRUE(segment.ok()) << segment.status().message();
  EXPECT_EQ(segment->tcp_data_port, 7);
  const auto listener = metadata->Locate("b");
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(*listener, (HostPort{.host = "fe80::1", .port = 9}));
  EXPECT_EQ(metadata->Fetch("c", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(metadata->Locate("c").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StoredMetadataTest, WordsGoToTheListenerOfTheEntry) {
  std::string heard;
  {
    const ServerThread server({.on_notify = [&heard](const std::string&, std::string message) {
      heard = std::move(message);
      return true;
    }});
    store_.values["mooncake/rpc_meta/b"] =
        R"({"ip_or_host_name":"127.0.0.1","rpc_port":)" + std::to_string(server.port()) + "}";
    const auto metadata = Make("a");
    EXPECT_TRUE(metadata->Probe("b").ok());
    EXPECT_TRUE(metadata->Notify("b", {.name = "n", .message = "kv is there"}).ok());
    EXPECT_FALSE(metadata->Probe("c").ok());
  }
  EXPECT_EQ(heard, "kv is there");
}

TEST_F(StoredMetadataTest, MalformedValuesAreRefusedByKey) {
  const auto metadata = Make("a");
  for (const char* text :
       {"", "null", "[]", "{}", R"({"ip_or_host_name":"h"})", R"({"rpc_port":1})",
        R"({"ip_or_host_name":"","rpc_port":1})", R"({"ip_or_host_name":"h","rpc_port":0})",
        R"({"ip_or_host_name":"h","rpc_port":65536})", R"({"ip_or_host_name":"h","rpc_port":-1})",
        R"({"ip_or_host_name":"h","rpc_port":"1"})", R"({"ip_or_host_name":1,"rpc_port":1})"}) {
    store_.values["mooncake/rpc_meta/b"] = text;
    const absl::Status status = metadata->Locate("b").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("mooncake/rpc_meta/b")) << text;
  }
  store_.values["mooncake/ram/b"] = "{\"name\":1}";
  EXPECT_THAT(std::string(metadata->Fetch("b", {}).status().message()),
              HasSubstr("mooncake/ram/b: name"));
}

TEST_F(StoredMetadataTest, AServiceThatIsDownIsNotAskedToForgetWhatItNeverKnew) {
  const auto metadata = Make("a");
  store_.down = absl::FailedPreconditionError("down");
  EXPECT_FALSE(metadata->Publish().ok());
  EXPECT_TRUE(metadata->Withdraw().ok());
  EXPECT_THAT(store_.calls, ElementsAre("put mooncake/rpc_meta/a"));
  store_.down = absl::OkStatus();
  ASSERT_TRUE(metadata->Publish().ok());
  store_.down = absl::FailedPreconditionError("down");
  EXPECT_FALSE(metadata->Withdraw().ok());
}

// The descriptor is read once it is this thread's turn, so the last to publish has the newest.
TEST_F(StoredMetadataTest, AnOlderDescriptorNeverReplacesANewerOne) {
  const auto metadata = Make("a");
  ASSERT_TRUE(metadata->Publish().ok());
  Flag first_is_at_it;
  Flag go_on;
  std::atomic<bool> is_first{true};
  store_.on_put = [&] {
    if (!is_first.exchange(false)) return;
    first_is_at_it.Set();
    EXPECT_TRUE(go_on.Wait());
  };
  std::thread first([&] { EXPECT_TRUE(metadata->Publish().ok()); });
  ASSERT_TRUE(first_is_at_it.Wait());
  descriptor_ = "{\"n\":2}";
  std::thread second([&] { EXPECT_TRUE(metadata->Publish().ok()); });
  go_on.Set();
  first.join();
  second.join();
  EXPECT_EQ(store_.values["mooncake/ram/a"], "{\"n\":2}");
}

}  // namespace
}  // namespace railhop

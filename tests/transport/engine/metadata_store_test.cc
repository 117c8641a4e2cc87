#include "transport/engine/metadata_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/engine/http_support.h"
#include "transport/engine/etcd_store.h"
#include "transport/engine/http_store.h"

namespace railhop {
namespace {

using testing::HasSubstr;

template <typename Store>
bool Opens(const std::string& connection) {
  const auto store = OpenMetadataStore(connection, 1000);
  return store.ok() && dynamic_cast<Store*>(store->get()) != nullptr;
}

TEST(MetadataStoreTest, TheSchemeChooses) {
  EXPECT_TRUE(Opens<HttpStore>("http://a:1/metadata"));
  EXPECT_TRUE(Opens<HttpStore>("https://a/metadata"));
  EXPECT_TRUE(Opens<EtcdStore>("etcd://a:1"));
  EXPECT_TRUE(Opens<EtcdStore>("etcd://a;b:2;[::1]:3"));
  EXPECT_TRUE(Opens<EtcdStore>("a:1")) << "as upstream";
  EXPECT_TRUE(Opens<EtcdStore>("a"));
}

TEST(MetadataStoreTest, WhatIsNoServiceIsRefusedWithWhatIsAllowed) {
  for (const char* connection :
       {"", "redis://a:1", "http://", "etcd://", "etcd://a:x", "a:0", ";", "a:1,b:2", "HTTP://a"}) {
    const auto store = OpenMetadataStore(connection, 1000);
    EXPECT_EQ(store.status().code(), absl::StatusCode::kInvalidArgument) << connection;
    EXPECT_THAT(std::string(store.status().message()), HasSubstr("allowed: P2PHANDSHAKE, http://"));
  }
}

TEST(MetadataStoreTest, AllAddressesOfEtcdAreUsed) {
  const ScriptedHttpServer good([](const ReceivedRequest&) { return HttpText(200, "{}"); });
  const auto store = OpenMetadataStore("etcd://" + RefusingAddress() + ";" + good.address(), 1000);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE((*store)->Put("k", "v").ok());
}

}  // namespace
}  // namespace railhop

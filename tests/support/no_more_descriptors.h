// NoMoreDescriptors: while it lives, the process cannot open another descriptor, or but a few.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace railhop {

class NoMoreDescriptors {
 public:
  explicit NoMoreDescriptors(int left = 0) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int lowest_free = dup(STDERR_FILENO);
    EXPECT_GE(lowest_free, 0);
    close(lowest_free);
    const rlimit limit{static_cast<rlim_t>(lowest_free + left), before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~NoMoreDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace railhop

// What the ring's tests share: a private registry root, child processes that die when told to, and
// a capture of the log.
//
// Nothing here sleeps: parent and child hand each other bytes over a socket pair.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/log.h"
#include "transport/ring/registry.h"

namespace railhop::testing {

// A directory that is removed with everything in it.
class PrivateRoot {
 public:
  explicit PrivateRoot(const std::string& parent = "/dev/shm") {
    std::string pattern = parent + "/railhop-test.XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  PrivateRoot(const PrivateRoot&) = delete;
  PrivateRoot& operator=(const PrivateRoot&) = delete;
  ~PrivateRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  RegistryOptions Options(const std::string& group = "test") const {
    return {.root = path_, .group_id = group};
  }
  // Paths of a group's registry and side directory.
  std::string Registry(const std::string& group = "test") const {
    return path_ + "/mooncake-pxn-" + std::to_string(geteuid()) + "-" + group;
  }
  std::string Side(const std::string& group = "test") const {
    return path_ + "/railhop-" + std::to_string(geteuid()) + "-" + group;
  }
  // Names in a directory, sorted.
  static std::vector<std::string> List(const std::string& directory) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

// A forked process. The body gets its end of the link; the process exits when the body returns.
class Child {
 public:
  class Link {
   public:
    explicit Link(int fd) : fd_(fd) {}
    bool Tell(char byte = '.') const { return send(fd_, &byte, 1, MSG_NOSIGNAL) == 1; }
    // 0 when the other side is gone.
    char Await() const {
      char byte = 0;
      ssize_t count;
      do {
        count = recv(fd_, &byte, 1, 0);
      } while (count < 0 && errno == EINTR);
      return count == 1 ? byte : '\0';
    }

   private:
    int fd_;
  };

  explicit Child(const std::function<bool(const Link&)>& body) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ < 0) std::abort();
    if (pid_ == 0) {
      close(ends[0]);
      _exit(body(Link(ends[1])) ? 0 : 1);
    }
    close(ends[1]);
    fd_ = ends[0];
  }
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), fd_(std::exchange(other.fd_, -1)) {}
  ~Child() {
    Kill();
    if (fd_ >= 0) close(fd_);
  }

  pid_t pid() const { return pid_; }
  Link link() const { return Link(fd_); }
  bool Tell(char byte = '.') const { return link().Tell(byte); }
  char Await() const { return link().Await(); }

  // Dead and gone.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  // Dead, and still a zombie.
  void KillToZombie() const {
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  // Stopped, for certain, when it returns.
  void Stop() const {
    kill(pid_, SIGSTOP);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOWAIT);
  }
  // True if the body returned true.
  bool Join() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

// Collects warnings and errors for as long as it lives.
class LogCapture {
 public:
  LogCapture() {
    previous_ = SetLogSink([this](LogLevel, std::string_view message) {
      const std::lock_guard<std::mutex> lock(mutex_);
      messages_.emplace_back(message);
    });
  }
  ~LogCapture() { SetLogSink(previous_); }

  std::vector<std::string> messages() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return messages_;
  }
  size_t Count(std::string_view part) const {
    size_t count = 0;
    for (const std::string& message : messages()) {
      count += message.find(part) != std::string::npos ? 1 : 0;
    }
    return count;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
  LogSink previous_;
};

inline HandleBytes MakeHandle(uint8_t seed) {
  HandleBytes handle;
  for (size_t i = 0; i < handle.size(); ++i) handle[i] = static_cast<uint8_t>(seed + i);
  return handle;
}

// A registry, and this process published in it.
struct Member {
  std::unique_ptr<Registry> registry;
  std::unique_ptr<Registration> self;
};
inline absl::StatusOr<Member> Join(const RegistryOptions& options, const std::string& rail) {
  absl::StatusOr<std::unique_ptr<Registry>> registry = Registry::Open(options);
  if (!registry.ok()) return registry.status();
  const std::vector<std::string> rails = {rail};
  absl::StatusOr<std::unique_ptr<Registration>> self =
      (*registry)->CreateLocal(rails, MakeHandle(1));
  if (!self.ok()) return self.status();
  if (absl::Status status = (*self)->Publish(); !status.ok()) return status;
  return Member{std::move(*registry), std::move(*self)};
}

// A process that joins the group, says so, and stays until it is killed or told to leave ('q').
inline Child MakeMember(const RegistryOptions& options, const std::string& rail) {
  return Child([options, rail](const Child::Link& link) {
    absl::StatusOr<Member> member = Join(options, rail);
    if (!member.ok()) {
      std::fprintf(stderr, "%s\n", std::string(member.status().message()).c_str());
      return false;
    }
    return link.Tell() && link.Await() == 'q';
  });
}

}  // namespace railhop::testing

// A forked process for tests, with a socket to talk to it.
//
// The child runs `body` and ends without running destructors or GoogleTest. The destructor kills
// what still runs and reaps it, so that no test leaves a process behind. Fork before making
// threads.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <type_traits>

namespace railhop {

// One end of the socket between a test and its child. Both calls block.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}

  template <typename T>
  bool Send(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return write(fd_, &value, sizeof(value)) == static_cast<ssize_t>(sizeof(value));
  }
  // False once the other side is gone.
  template <typename T>
  bool Receive(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return recv(fd_, value, sizeof(*value), MSG_WAITALL) == static_cast<ssize_t>(sizeof(*value));
  }
  // Blocks until the other side is gone.
  void WaitForEnd() {
    char byte;
    while (read(fd_, &byte, 1) > 0) {
    }
  }

 private:
  int fd_;
};

class ChildProcess {
 public:
  // `body(channel)` returns the child's exit status.
  template <typename Body>
  explicit ChildProcess(Body body) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      Channel channel(ends[1]);
      _exit(body(channel));
    }
    close(ends[1]);
    fd_ = ends[0];
  }
  ~ChildProcess() {
    Kill();
    close(fd_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  Channel channel() const { return Channel(fd_); }

  // SIGKILL, then until it is gone.
  void Kill() {
    if (reaped_) return;
    kill(pid_, SIGKILL);
    Wait();
  }
  // The exit status; -1 if a signal ended it.
  int Wait() {
    if (!reaped_) {
      int status = 0;
      EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
      reaped_ = true;
      exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    return exit_status_;
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
  bool reaped_ = false;
  int exit_status_ = -1;
};

}  // namespace railhop

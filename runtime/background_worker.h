// BackgroundWorker: work of the control path that would hold its thread up - faulting in the 144
// MiB of a staging lane takes 50 to 150 ms - done beside it, in the order in which it was asked
// for: one job after another, or a few at a time.
//
// Threads: Start and the destructor on one thread, the owner's. The threads that work live only
// while there are jobs, on the cores that were allowed to whoever made this object (a reactor may
// be pinned to a core where data flows).
#pragma once

#include <sched.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace railhop {

class BackgroundWorker {
 public:
  class Job {
   public:
    bool done() const { return done_.load(std::memory_order_acquire); }
    const absl::Status& status() const { return status_; }  // once done

   private:
    friend class BackgroundWorker;
    std::function<absl::Status()> work_;
    absl::Status status_;
    std::atomic<bool> done_{false};
  };

  // `wake` is called on the working thread after each job. `threads`: so many jobs at a time, if
  // the system has as many.
  explicit BackgroundWorker(std::function<void()> wake, size_t threads = 1);
  // Waits for the jobs under way; those that have not begun are never done.
  ~BackgroundWorker();
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // What `work` captures lives until it has run, whoever has lost interest in the job by then. A
  // job that there is no thread for at all is done at once, with ResourceExhausted, and `wake` is
  // called.
  std::shared_ptr<Job> Start(std::function<absl::Status()> work);

 private:
  struct Worker {
    std::thread thread;
    bool running = false;  // under mutex_: it will look at jobs_ again
  };
  void Run(Worker& self);
  void Refuse(Job& job, const char* reason);

  const std::function<void()> wake_;
  cpu_set_t cores_;
  bool cores_known_ = false;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Job>> jobs_;  // under mutex_
  std::vector<Worker> workers_;
};

}  // namespace railhop

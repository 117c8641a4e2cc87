// BackgroundWorker: work of the control path that would hold its reactor up - faulting in the 144
// MiB of a staging lane takes 50 to 150 ms - done beside it, one job after another.
//
// Threads: Start and the destructor on one thread, the owner's. The thread that works lives only
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

  // `wake` is called on the working thread after each job.
  explicit BackgroundWorker(std::function<void()> wake);
  // Waits for the job under way; those that have not begun are never done.
  ~BackgroundWorker();
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // What `work` captures lives until it has run, whoever has lost interest in the job by then.
  std::shared_ptr<Job> Start(std::function<absl::Status()> work);

 private:
  void Run();

  const std::function<void()> wake_;
  cpu_set_t cores_;
  bool cores_known_ = false;
  std::thread thread_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Job>> jobs_;  // under mutex_
  bool running_ = false;                   // under mutex_: the thread will look at jobs_ again
};

}  // namespace railhop

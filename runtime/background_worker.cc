#include "runtime/background_worker.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace railhop {

BackgroundWorker::BackgroundWorker(std::function<void()> wake, size_t threads)
    : wake_(std::move(wake)), workers_(threads) {
  CPU_ZERO(&cores_);
  cores_known_ = sched_getaffinity(0, sizeof(cores_), &cores_) == 0;
}

BackgroundWorker::~BackgroundWorker() {
  {
    std::lock_guard lock(mutex_);
    jobs_.clear();
  }
  for (Worker& worker : workers_) {
    if (worker.thread.joinable()) worker.thread.join();
  }
}

std::shared_ptr<BackgroundWorker::Job> BackgroundWorker::Start(std::function<absl::Status()> work) {
  auto job = std::make_shared<Job>();
  job->work_ = std::move(work);
  std::lock_guard lock(mutex_);
  jobs_.push_back(job);
  const auto idle = std::find_if(workers_.begin(), workers_.end(),
                                 [](const Worker& worker) { return !worker.running; });
  if (idle == workers_.end()) return job;
  const bool none_runs = std::none_of(workers_.begin(), workers_.end(),
                                      [](const Worker& worker) { return worker.running; });
  if (idle->thread.joinable()) idle->thread.join();  // it is past its last look at jobs_
  try {
    idle->thread = std::thread([this, idle] { Run(*idle); });
    idle->running = true;
  } catch (const std::system_error& error) {
    if (none_runs) Refuse(*job, error.what());
  }
  return job;
}

// Under mutex_.
void BackgroundWorker::Refuse(Job& job, const char* reason) {
  jobs_.clear();
  job.status_ = absl::ResourceExhaustedError(
      std::string("no thread is left for background work (ulimit -u): ") + reason);
  job.done_.store(true, std::memory_order_release);
  wake_();
}

void BackgroundWorker::Run(Worker& self) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the application's
  pthread_setname_np(pthread_self(), "railhop-work");
  if (cores_known_) sched_setaffinity(0, sizeof(cores_), &cores_);
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::lock_guard lock(mutex_);
      if (jobs_.empty()) {
        self.running = false;
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job->status_ = job->work_();
    job->work_ = nullptr;
    job->done_.store(true, std::memory_order_release);
    wake_();
  }
}

}  // namespace railhop

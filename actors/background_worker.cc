#include "actors/background_worker.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace railhop {

BackgroundWorker::BackgroundWorker(std::function<void()> wake) : wake_(std::move(wake)) {
  CPU_ZERO(&cores_);
  cores_known_ = sched_getaffinity(0, sizeof(cores_), &cores_) == 0;
}

BackgroundWorker::~BackgroundWorker() {
  {
    std::lock_guard lock(mutex_);
    jobs_.clear();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<BackgroundWorker::Job> BackgroundWorker::Start(std::function<absl::Status()> work) {
  auto job = std::make_shared<Job>();
  job->work_ = std::move(work);
  std::lock_guard lock(mutex_);
  jobs_.push_back(job);
  if (running_) return job;
  if (thread_.joinable()) thread_.join();  // it is past its last look at jobs_
  running_ = true;
  thread_ = std::thread([this] { Run(); });
  return job;
}

void BackgroundWorker::Run() {
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
        running_ = false;
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

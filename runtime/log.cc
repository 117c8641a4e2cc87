#include "runtime/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace railhop {
namespace {

constexpr std::chrono::seconds kRarely{10};
constexpr size_t kMaxRareKeys = 1024;

// What LogRarely knows of one key.
struct Rare {
  std::chrono::steady_clock::time_point said_at;
  uint64_t left_out = 0;  // since then
};

// Never destroyed: threads may still log while the process runs its static destructors.
struct LogState {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;      // nullptr: standard error
  std::set<std::string, std::less<>> said;  // keys of LogOnce
  std::map<std::string, Rare, std::less<>> rare;
  LogLevel threshold = LogLevel::kWarning;
  bool chosen = false;  // by RAILHOP_LOG_LEVEL

  LogState() {
    const char* text = std::getenv("RAILHOP_LOG_LEVEL");
    chosen = text != nullptr;
    const std::string_view level = text == nullptr ? "" : text;
    if (level == "info") threshold = LogLevel::kInfo;
    if (level == "error") threshold = LogLevel::kError;
  }
};

LogState& State() {
  static LogState* const state = new LogState;
  return *state;
}

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

// One write per line, so that the lines of several processes do not mix.
void WriteToStandardError(LogLevel level, std::string_view message) {
  const std::string line = fmt::format("railhop {}: {}\n", LevelName(level), message);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void SetDefaultLogLevel(LogLevel level) {
  LogState& state = State();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (!state.chosen) state.threshold = level;
}

LogSink SetLogSink(LogSink sink) {
  LogState& state = State();
  std::shared_ptr<const LogSink> next;
  if (sink) next = std::make_shared<const LogSink>(std::move(sink));
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    std::swap(state.sink, next);
  }
  return next == nullptr ? LogSink() : *next;
}

void Log(LogLevel level, std::string_view message) {
  LogState& state = State();
  if (level < state.threshold) return;
  std::shared_ptr<const LogSink> sink;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    sink = state.sink;
  }
  // Outside the lock: a sink may log, or replace itself.
  if (sink == nullptr) {
    WriteToStandardError(level, message);
  } else {
    (*sink)(level, message);
  }
}

void LogOnce(LogLevel level, std::string_view key, std::string_view message) {
  LogState& state = State();
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (state.said.find(key) != state.said.end()) return;
    state.said.emplace(key);
  }
  Log(level, message);
}

void LogRarely(LogLevel level, std::string_view key, std::string_view message,
               std::chrono::steady_clock::time_point now) {
  LogState& state = State();
  uint64_t left_out = 0;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    const auto known = state.rare.find(key);
    if (known != state.rare.end()) {
      Rare& rare = known->second;
      if (now - rare.said_at < kRarely) {
        ++rare.left_out;
        return;
      }
      left_out = std::exchange(rare, Rare{.said_at = now}).left_out;
    } else {
      // Keys may have names that callers make up: a line said again costs less than their memory.
      if (state.rare.size() == kMaxRareKeys) state.rare.clear();
      state.rare.emplace(key, Rare{.said_at = now});
    }
  }
  if (left_out == 0) return Log(level, message);
  Log(level, fmt::format("{} (and {} like it since the last such line)", message, left_out));
}

}  // namespace railhop

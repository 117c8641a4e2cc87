// Log lines of the control path. The data path never logs.
//
// One sink for the process, standard error by default; an embedding application may take it over.
// Thread-safe. Levels below RAILHOP_LOG_LEVEL (info | warning | error; default warning) are
// dropped.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace railhop {

enum class LogLevel { kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink; an empty one restores standard error. Returns the previous one.
LogSink SetLogSink(LogSink sink);

// In place of what RAILHOP_LOG_LEVEL says, unless that is set.
void SetDefaultLogLevel(LogLevel level);

void Log(LogLevel level, std::string_view message);

// Says it once per process and `key`; later calls with the key are dropped.
void LogOnce(LogLevel level, std::string_view key, std::string_view message);

// For what a caller may do wrong in a loop: says it if nothing was said of `key` for 10 s, with how
// many were left out since.
void LogRarely(LogLevel level, std::string_view key, std::string_view message,
               std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

}  // namespace railhop

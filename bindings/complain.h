// How a binding whose callers get codes says what happened: one warning, not for every turn of a
// loop that goes on after errors.
#pragma once

#include <fmt/format.h>

#include <cctype>
#include <string>
#include <string_view>

#include "runtime/log.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

// Without its numbers, addresses included: texts that differ in those only are of one kind.
inline std::string KindOf(std::string_view text) {
  std::string kind;
  bool in_number = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    in_number = std::isdigit(byte) != 0 || (in_number && std::isalnum(byte) != 0);
    if (!in_number) kind += c;
  }
  return kind;
}

// `call`: what was asked for, and of whom.
inline void Complain(std::string_view call, std::string_view text) {
  LogRarely(LogLevel::kWarning, fmt::format("{}: {}", call, KindOf(text)),
            fmt::format("{}: {}", call, text));
}

inline EngineError Complain(std::string_view call, EngineError error) {
  if (error != EngineError::kOk) Complain(call, TransferEngine::last_error());
  return error;
}

// A batch, or task of one, that may have failed or be late.
inline void Complain(std::string_view call, const TransferStatus& status) {
  if (status.state == TransferState::kFailed || status.state == TransferState::kTimeout) {
    Complain(call, TransferEngine::last_error());
  }
}

}  // namespace railhop

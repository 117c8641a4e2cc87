// A benchmark whose processes find each other in shared memory.
#pragma once

#include <functional>
#include <string>

namespace railhop {

// Runs `body` in a process of its own, with a folder in shared memory that is removed when it has
// ended, however it does: by itself, by exit(), by a crash, or since SIGINT, SIGTERM or SIGHUP came
// here. What a SIGKILL leaves behind, the next run of the same `kind` removes. Returns the code to
// exit with: what `body` returned, or 128 and the signal. For a process with one thread.
int RunInWorkplace(const std::string& kind, const std::function<int(const std::string&)>& body);

}  // namespace railhop

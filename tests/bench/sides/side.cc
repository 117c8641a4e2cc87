#include "tests/bench/sides/side.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <sstream>

#include "fmt/format.h"

extern char** environ;

namespace railhop {

absl::StatusOr<std::unique_ptr<Side>> Side::Start(const SideProgram& program) {
  std::array<int, 2> orders{};
  std::array<int, 2> answers{};
  if (pipe2(orders.data(), O_CLOEXEC) != 0 || pipe2(answers.data(), O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError("no pipe is to be had; raise `ulimit -n`");
  }
  std::vector<std::string> words{program.python, program.script, program.kind};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> own = program.environment;
  for (char** variable = environ; *variable != nullptr; ++variable) own.emplace_back(*variable);
  std::vector<char*> environment;
  for (std::string& variable : own) environment.push_back(variable.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, orders[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO);
  std::unique_ptr<Side> side(new Side);
  side->kind_ = program.kind;
  const int error = posix_spawnp(&side->pid_, program.python.c_str(), &actions, nullptr,
                                 arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(orders[0]);
  close(answers[1]);
  side->orders_ = fdopen(orders[1], "w");
  side->answers_ = fdopen(answers[0], "r");
  if (error != 0) {
    side->pid_ = -1;
    return absl::UnavailableError(
        fmt::format("cannot run {}: {}", program.python, strerror(error)));
  }
  const absl::StatusOr<std::string> hello = side->ReadLine();
  if (!hello.ok()) return hello.status();
  std::istringstream(*hello) >> side->name_ >> side->address_;
  return side;
}

Side::~Side() {
  if (orders_ != nullptr) fclose(orders_);  // it ends with its orders
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  if (answers_ != nullptr) fclose(answers_);
}

absl::StatusOr<std::string> Side::ReadLine() {
  std::array<char, 512> line{};
  if (fgets(line.data(), line.size(), answers_) == nullptr) {
    return absl::UnavailableError(
        fmt::format("the process of \"{}\" has ended; what it said is above", kind_));
  }
  return std::string(line.data());
}

absl::StatusOr<std::vector<double>> Side::Ask(const std::string& order) {
  fputs((order + "\n").c_str(), orders_);
  fflush(orders_);
  const absl::StatusOr<std::string> line = ReadLine();
  if (!line.ok()) return line.status();
  if (line->starts_with("failed")) return absl::AbortedError(*line);
  std::istringstream numbers(*line);
  std::vector<double> values;
  for (double value; numbers >> value;) values.push_back(value);
  return values;
}

}  // namespace railhop

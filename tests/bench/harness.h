// The benchmark harness: a subject and its reference measured in turns, so that what the machine
// does meanwhile (clock changes, neighbours) hits both.
//
//   Bench bench = Bench::FromArguments(argc, argv, "what it measures");
//   bench.Run({.name = "hop.round_trip", .unit = "ns", ... .subject = [&] { return sample; },
//   ...}); return bench.Finish();
//
// A pair is one sample of each, every second pair in reverse order; the ratio is the median over
// the pairs of subject / reference, so it need not equal the quotient of the two medians shown.
// --control adds a second sample of the subject to each pair: the median of subject / subject says
// what a ratio of this run can mean. Overheads of a few per cent want at least kPairsForOverheads.
//
// Standard output: a table, or with --json one JSON object a line and nothing else (progress goes
// to standard error); a goal that is not met is marked in both. Benchmarks report; they never fail
// because of a figure. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu_placement.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace railhop {

inline constexpr int kPairsForOverheads = 21;
inline constexpr int kExitCannotMeasure = 77;  // ctest's usual value for "skipped"

double Median(std::vector<double> values);

// Whether `value` is what a goal wants: "OP NUMBER" with OP one of < <= == >= >. An empty goal,
// which promises nothing, is met by any value.
bool MeetsGoal(const std::string& goal, double value);

// Two cores and how near they are to each other; -1: the figures do not depend on cores.
struct CorePair {
  int first = -1, second = -1;
  std::string relation;  // "same core" | "hyper-thread sibling" | "other core" | "other NUMA node"
};
// `wished`: two cores of the allowed ones, or empty for the nearest two that are no siblings.
absl::StatusOr<CorePair> ChooseCores(const std::vector<int>& wished,
                                     const std::vector<int>& allowed,
                                     const CoreTopology& topology = CoreTopology());

// One sample: the value that is compared, and what else was measured in the same run.
struct Sample {
  Sample(double measured) : value(measured) {}  // NOLINT: a plain number is a sample
  Sample(double measured, std::vector<double> others)
      : value(measured), beside(std::move(others)) {}
  double value = 0;
  std::vector<double> beside;  // as Figure::beside names them
};

struct Result {
  double value = 0;                      // median of the subject's samples
  double reference = 0;                  // median of the reference's samples
  double ratio = 0;                      // median of the pairs' ratios
  double ratio_low = 0, ratio_high = 0;  // quartiles of the pairs' ratios
  std::optional<double> control;         // median of subject / subject
  // Medians of what the samples carry besides, and of their pairs' ratios.
  std::vector<double> beside, reference_beside, ratio_beside;
  int pairs = 0;
};

// What else a figure shows.
struct Beside {
  Beside(const char* what) : name(what) {}  // NOLINT: a plain name promises nothing
  Beside(const char* what, const char* wanted) : name(what), goal(wanted) {}
  std::string name;  // "cpu_s_per_gb"
  std::string goal;  // as Figure::goal
};

// One line of the result.
struct Figure {
  std::string name = {};                           // of the JSON line: "hop.round_trip"
  std::string unit = {};                           // of a sample
  std::string subject_is = {}, reference_is = {};  // in a few words
  // What the ratio (without a reference: the value) should be: ">= 2"; empty: nothing is promised.
  std::string goal = {};
  std::vector<std::string> includes = {};  // what the time contains
  std::vector<Beside> beside = {};         // what each sample carries besides
  std::function<Sample()> subject = {};    // takes one sample
  std::function<Sample()> reference = {};  // empty: a figure without comparison
  // Why the goal says nothing about this result, though it may be met; "": it does.
  std::function<std::string(const Result&)> objection = {};
};

Result Measure(const Figure& figure, int pairs, bool control);

struct BenchOptions {
  bool json = false;
  std::string save = {};  // JSON lines are appended to this file as well
  std::string only = {};  // only figures whose name contains this
  bool control = false;
  int pairs = kPairsForOverheads;
  std::chrono::milliseconds sample{50};  // how long one sample should take
  std::vector<int> cores = {};
};

// --json and --save, for command lines that are not Bench::FromArguments'. A file to save to that
// cannot be written is a wrong command line.
void AddOutputOptions(CLI::App& app, BenchOptions* options);

class Bench {
 public:
  // Reads the command line; prints the help or what is wrong with it, and exits. `defaults` holds
  // for what the command line does not say.
  static Bench FromArguments(int argc, char** argv, const std::string& about,
                             const BenchOptions& defaults = {});
  // Results go to `out`.
  Bench(BenchOptions options, CorePair cores, std::ostream& out);

  const BenchOptions& options() const { return options_; }
  const CorePair& cores() const { return cores_; }

  // Whether figures of that name, or whose names begin so, may be among the wanted ones.
  bool Wants(const std::string& name) const;
  void Run(const Figure& figure);
  // The table's end; the exit code for main: not 0 where a line could not be saved.
  int Finish();

 private:
  void Print(const Figure& figure, const Result& result);
  std::string JsonLine(const Figure& figure, const Result& result,
                       const std::string& objection) const;

  BenchOptions options_;
  CorePair cores_;
  std::ostream* out_;
  int figures_ = 0;
  bool all_saved_ = true;
};

}  // namespace railhop

#include "tests/bench/harness.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fmt/format.h"

namespace railhop {
namespace {

// Linear between the two nearest values.
double Quantile(std::vector<double> values, double quantile) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double position = quantile * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (position - static_cast<double>(below));
}

std::string Relation(int first, int second, const CoreTopology& topology) {
  if (first == second) return "same core";
  const std::vector<int> siblings = topology.Siblings(first);
  if (std::find(siblings.begin(), siblings.end(), second) != siblings.end()) {
    return "hyper-thread sibling";
  }
  return topology.NumaNode(first) == topology.NumaNode(second) ? "other core" : "other NUMA node";
}

template <class Get>
std::vector<double> Each(const std::vector<Sample>& samples, Get get) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(get(sample));
  return values;
}

// Pair by pair; empty without references.
template <class Get>
std::vector<double> Ratios(const std::vector<Sample>& subjects,
                           const std::vector<Sample>& references, Get get) {
  std::vector<double> ratios;
  for (size_t i = 0; i < references.size(); ++i) {
    ratios.push_back(get(subjects[i]) / get(references[i]));
  }
  return ratios;
}

// Three significant digits: more is noise.
std::string Short(double value) {
  if (value == 0) return "0";
  if (std::abs(value) >= 1000) return fmt::format("{:.0f}", value);
  const int digits = 2 - static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(digits, 0, 6));
}

// A goal's cell in the table; `value` is what it is held against.
std::string GoalCell(const std::string& goal, double value) {
  return MeetsGoal(goal, value) ? goal : goal + " MISSED";
}

void AddGoal(nlohmann::ordered_json* line, const std::string& goal, double value) {
  if (goal.empty()) return;
  (*line)["goal"] = goal;
  (*line)["goal_met"] = MeetsGoal(goal, value);
}

}  // namespace

double Median(std::vector<double> values) {
  return Quantile(std::move(values), 0.5);
}

bool MeetsGoal(const std::string& goal, double value) {
  if (goal.empty()) return true;
  const size_t space = goal.find(' ');
  const std::string_view is = std::string_view(goal).substr(0, space);
  const double wanted = std::stod(goal.substr(space));
  if (is == "<") return value < wanted;
  if (is == "<=") return value <= wanted;
  if (is == ">=") return value >= wanted;
  return is == ">" ? value > wanted : value == wanted;
}

absl::StatusOr<CorePair> ChooseCores(const std::vector<int>& wished,
                                     const std::vector<int>& allowed,
                                     const CoreTopology& topology) {
  if (!wished.empty()) {
    if (wished.size() != 2) {
      return absl::InvalidArgumentError(
          fmt::format("two cores are needed, {} were given", wished.size()));
    }
    for (const int core : wished) {
      absl::Status status = CheckCoreAllowed(core, allowed);
      if (!status.ok()) return status;
    }
    return CorePair{wished[0], wished[1], Relation(wished[0], wished[1], topology)};
  }
  if (allowed.size() < 2) {
    return absl::FailedPreconditionError(fmt::format(
        "two cores are needed, and this process may use only: {}", FormatCoreList(allowed)));
  }
  // In order of preference; the first pair of a kind is taken.
  for (const std::string wanted : {"other core", "other NUMA node"}) {
    for (const int second : allowed) {
      const std::string relation = Relation(allowed[0], second, topology);
      if (relation == wanted) return CorePair{allowed[0], second, relation};
    }
  }
  return CorePair{allowed[0], allowed[1], Relation(allowed[0], allowed[1], topology)};
}

Result Measure(const Figure& figure, int pairs, bool control) {
  std::vector<Sample> subjects, references;
  std::vector<double> controls;
  for (int i = 0; i < pairs; ++i) {
    const bool subject_first = i % 2 == 0;
    if (subject_first) subjects.push_back(figure.subject());
    if (figure.reference) references.push_back(figure.reference());
    if (!subject_first) subjects.push_back(figure.subject());
    if (control && figure.reference) {
      controls.push_back(figure.subject().value / subjects.back().value);
    }
  }
  const auto value = [](const Sample& sample) { return sample.value; };
  Result result;
  const std::vector<double> ratios = Ratios(subjects, references, value);
  result.value = Median(Each(subjects, value));
  result.reference = Median(Each(references, value));
  result.ratio = Median(ratios);
  result.ratio_low = Quantile(ratios, 0.25);
  result.ratio_high = Quantile(ratios, 0.75);
  if (!controls.empty()) result.control = Median(controls);
  for (size_t i = 0; i < figure.beside.size(); ++i) {
    const auto other = [i](const Sample& sample) { return sample.beside.at(i); };
    result.beside.push_back(Median(Each(subjects, other)));
    result.reference_beside.push_back(Median(Each(references, other)));
    result.ratio_beside.push_back(Median(Ratios(subjects, references, other)));
  }
  result.pairs = pairs;
  return result;
}

void AddOutputOptions(CLI::App& app, BenchOptions* options) {
  app.add_flag("--json", options->json, "JSON lines on standard output, nothing else");
  app.add_option("--save", options->save, "append the JSON lines to this file as well")
      ->check([](const std::string& path) {
        if (std::ofstream(path, std::ios::app)) return std::string();
        return fmt::format("the file {} cannot be written: {}; give another", path,
                           std::strerror(errno));
      });
}

Bench Bench::FromArguments(int argc, char** argv, const std::string& about,
                           const BenchOptions& defaults) {
  BenchOptions options = defaults;
  int sample_ms = static_cast<int>(options.sample.count());
  CLI::App app(about);
  AddOutputOptions(app, &options);
  app.add_option("--only", options.only, "only figures whose name contains this");
  app.add_flag("--control", options.control, "measure the subject against itself as well");
  app.add_option("--pairs", options.pairs, "samples of subject and reference each")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--sample-ms", sample_ms, "length of one sample")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  app.add_option("--cores", options.cores, "the two cores to use: A,B")->delimiter(',');
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11's own codes are all over the place; here 2 is a wrong command line.
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  options.sample = std::chrono::milliseconds(sample_ms);
  absl::StatusOr<CorePair> cores = ChooseCores(options.cores, AllowedCores());
  if (!cores.ok()) {
    std::cerr << std::string(cores.status().message()) << "\n";
    std::exit(absl::IsInvalidArgument(cores.status()) ? 2 : kExitCannotMeasure);
  }
  return Bench(std::move(options), *std::move(cores), std::cout);
}

Bench::Bench(BenchOptions options, CorePair cores, std::ostream& out)
    : options_(std::move(options)), cores_(std::move(cores)), out_(&out) {}

bool Bench::Wants(const std::string& name) const {
  return name.find(options_.only) != std::string::npos || options_.only.starts_with(name);
}

void Bench::Run(const Figure& figure) {
  if (figure.name.find(options_.only) == std::string::npos) return;
  const bool progress = isatty(STDERR_FILENO) == 1;
  if (progress) std::cerr << "\r\033[Kmeasuring " << figure.name << " ..." << std::flush;
  const Result result = Measure(figure, options_.pairs, options_.control);
  if (progress) std::cerr << "\r\033[K" << std::flush;
  Print(figure, result);
  ++figures_;
}

void Bench::Print(const Figure& figure, const Result& result) {
  const std::string objection = figure.objection ? figure.objection(result) : "";
  const std::string line = JsonLine(figure, result, objection);
  if (!options_.save.empty()) {
    std::ofstream file(options_.save, std::ios::app);
    file << line << "\n";
    if (!file.flush()) {
      std::cerr << fmt::format(
          "the line of {} cannot be written to {}: {}; give another file with "
          "--save\n",
          figure.name, options_.save, std::strerror(errno));
      all_saved_ = false;
    }
  }
  if (options_.json) {
    *out_ << line << std::endl;
    return;
  }
  if (figures_ == 0) {
    if (cores_.first >= 0) {
      *out_ << fmt::format("cores {} and {} ({}{}), {} pairs of {} ms\n\n", cores_.first,
                           cores_.second, cores_.relation,
                           IsVirtualised() ? ", virtual machine" : "", options_.pairs,
                           options_.sample.count());
    }
    *out_ << fmt::format("{:<24}{:>10}{:>11}  {:<8}{:>7}  {:<13}{:<15}{}\n", "figure", "value",
                         "reference", "unit", "ratio", "quartiles", "goal", "control");
  }
  const bool compared = static_cast<bool>(figure.reference);
  *out_ << fmt::format("{:<24}{:>10}{:>11}  {:<8}{:>7}  {:<13}{:<15}{}\n{:24}{}{}\n", figure.name,
                       Short(result.value), compared ? Short(result.reference) : "-", figure.unit,
                       compared ? Short(result.ratio) : "-",
                       compared ? Short(result.ratio_low) + ".." + Short(result.ratio_high) : "-",
                       GoalCell(figure.goal, compared ? result.ratio : result.value),
                       result.control ? fmt::format("{:.3f}", *result.control) : "", "",
                       figure.subject_is, compared ? " / " + figure.reference_is : "");
  for (size_t i = 0; i < figure.beside.size(); ++i) {
    const Beside& other = figure.beside[i];
    *out_ << fmt::format(
        "{:>22}  {:>10}{:>11}  {:<8}{:>7}  {:<13}{}\n", other.name, Short(result.beside[i]),
        Short(result.reference_beside[i]), "", Short(result.ratio_beside[i]), "",
        GoalCell(other.goal, compared ? result.ratio_beside[i] : result.beside[i]));
  }
  if (!objection.empty()) *out_ << fmt::format("{:24}the goal does not count: {}\n", "", objection);
  *out_ << std::flush;
}

std::string Bench::JsonLine(const Figure& figure, const Result& result,
                            const std::string& objection) const {
  nlohmann::ordered_json line;
  line["name"] = figure.name;
  line["value"] = result.value;
  if (figure.reference) {
    line["reference"] = result.reference;
    line["ratio"] = result.ratio;
    line["ratio_quartiles"] = {result.ratio_low, result.ratio_high};
    line["reference_is"] = figure.reference_is;
  }
  for (size_t i = 0; i < figure.beside.size(); ++i) {
    nlohmann::ordered_json& other = line["beside"][figure.beside[i].name];
    other["value"] = result.beside[i];
    if (figure.reference) {
      other["reference"] = result.reference_beside[i];
      other["ratio"] = result.ratio_beside[i];
    }
    AddGoal(&other, figure.beside[i].goal,
            figure.reference ? result.ratio_beside[i] : result.beside[i]);
  }
  line["unit"] = figure.unit;
  line["subject_is"] = figure.subject_is;
  line["includes"] = figure.includes;
  AddGoal(&line, figure.goal, figure.reference ? result.ratio : result.value);
  if (!objection.empty()) line["goal_does_not_count"] = objection;
  line["pairs"] = result.pairs;
  if (result.control) line["control"] = *result.control;
  line["placement"] = {{"cores", {cores_.first, cores_.second}},
                       {"relation", cores_.relation},
                       {"virtualised", IsVirtualised()}};
  return line.dump();
}

int Bench::Finish() {
  if (figures_ != 0) return all_saved_ ? 0 : 1;
  std::cerr << "no figure's name contains '" << options_.only << "'\n";
  return 2;
}

}  // namespace railhop

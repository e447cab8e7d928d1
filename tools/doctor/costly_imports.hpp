// Which imports make a start long, and what can be had instead of them.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "tools/doctor/import_times.hpp"

namespace weightmap::cli::doctor {

struct CostlyImport {
  std::string module;
  double seconds = 0;                  // with those of what it imports
  std::vector<std::string> importers;  // why it is imported, the outermost first
  std::size_t depth = 0;               // so many of these are costly as well
  std::size_t known = 0;               // so many importers lead to the last of these
};

// Returns the modules that take 5 % of all imports, without others that do: what they import comes
// behind them, the longest first. So they are 20 at most.
std::vector<CostlyImport> costly_imports(const ImportTimes& times);

// Returns the packages of these modules.
std::set<std::string> costly_packages(const ImportTimes& times);

// Returns a sentence, and behind it a line for each costly import, unless all are short: "412 ms
// torch._dynamo (by transformers.masking_utils)". Of importers that follow each other in one
// package, the first and the last are named.
std::vector<std::string> lines_about(const ImportTimes& times);

// What this machine and an interpreter have.
struct ImportMeans {
  bool snapshots = false;
  std::string lazy_python = {};  // the version of one that could import lazily, and does not
  std::string uncompiled = {};   // costly packages that have no bytecode
};

// Returns a sentence for each thing that makes the imports of a command shorter, with the most that
// it can gain; none if they are short.
std::vector<std::string> import_advice(const std::vector<std::string>& command, double seconds,
                                       const ImportMeans& means);

}  // namespace weightmap::cli::doctor

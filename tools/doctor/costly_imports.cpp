#include "tools/doctor/costly_imports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "tools/doctor/findings.hpp"
#include "tools/doctor/start_waits.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::doctor {
namespace {

constexpr double least_share = 0.05;

// A costly module, and the costly one that it is imported for.
struct Costly {
  std::size_t module;
  std::optional<std::size_t> within;
};

// Importers first. What a module takes without costly ones counts for its importer, unless it is
// costly itself.
std::vector<Costly> costly_modules(const ImportTimes& times) {
  const std::vector<ImportedModule>& modules = times.modules();
  const double least = times.seconds() * least_share;
  std::vector<double> rest(modules.size());
  std::vector<Costly> found;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    rest[i] += modules[i].own_seconds;
    if (rest[i] >= least && least > 0)
      found.insert(found.begin(), {i, std::nullopt});
    else if (modules[i].importer)
      rest[*modules[i].importer] += rest[i];
  }
  for (Costly& each : found) {
    const auto is_costly = [&found](std::size_t module) {
      return std::ranges::find(found, module, &Costly::module) != found.end();
    };
    each.within = modules[each.module].importer;
    while (each.within && !is_costly(*each.within)) each.within = modules[*each.within].importer;
  }
  std::ranges::stable_sort(found, [&modules](const Costly& a, const Costly& b) {
    return modules[a.module].seconds > modules[b.module].seconds;
  });
  return found;
}

CostlyImport describe_import(const std::vector<ImportedModule>& modules, const Costly& costly,
                             std::size_t depth) {
  CostlyImport import{modules[costly.module].name, modules[costly.module].seconds, {}, depth};
  for (std::optional<std::size_t> at = modules[costly.module].importer; at;
       at = modules[*at].importer) {
    if (at == costly.within)
      import.known = 1;
    else if (import.known > 0)
      ++import.known;
    import.importers.insert(import.importers.begin(), modules[*at].name);
  }
  return import;
}

void add_imports(std::vector<CostlyImport>& list, const ImportTimes& times,
                 const std::vector<Costly>& costly, std::optional<std::size_t> within,
                 std::size_t depth) {
  for (const Costly& each : costly) {
    if (each.within != within) continue;
    list.push_back(describe_import(times.modules(), each, depth));
    add_imports(list, times, costly, each.module, depth + 1);
  }
}

std::string_view package_of(std::string_view module) noexcept {
  return module.substr(0, module.find('.'));
}

// Returns "a.b > ... > a.c > d".
std::string chain_text(const std::vector<std::string>& modules, std::size_t first) {
  const auto is_of_package = [&](std::size_t i, std::string_view package) {
    return i >= first && i < modules.size() && package_of(modules[i]) == package;
  };
  std::string text;
  bool leaves_out = false;
  for (std::size_t i = first; i < modules.size(); ++i) {
    const std::string_view package = package_of(modules[i]);
    const bool is_within =
        i > first && is_of_package(i - 1, package) && is_of_package(i + 1, package);
    if (is_within && leaves_out) continue;
    text += (text.empty() ? "" : " > ") + (is_within ? std::string("...") : printable(modules[i]));
    leaves_out = is_within;
  }
  return text;
}

std::string line_about(const CostlyImport& import) {
  const std::string chain = chain_text(import.importers, import.known);
  return fmt::format("{:>8.0f} ms  {}{}{}", import.seconds * 1000,
                     std::string(2 * import.depth, ' '), printable(import.module),
                     chain.empty() ? "" : " (by " + chain + ")");
}

std::string fork_advice(const std::vector<std::string>& command, const std::string& gain) {
  const auto has = [&command](std::string_view word) {
    return std::ranges::any_of(command, [word](std::string_view each) {
      return each.substr(each.rfind('/') + 1) == word;
    });
  };
  if (!has("gunicorn"))
    return "Workers that are forked from a process that has imported start without imports, each " +
           gain + " sooner (examples/serving, also for uvicorn).";
  if (has("--preload")) return {};
  return "With `--preload`, unless its settings have `preload_app` already, gunicorn imports once, "
         "before it forks its workers, and each further one starts " +
         gain + " sooner.";
}

}  // namespace

std::vector<CostlyImport> costly_imports(const ImportTimes& times) {
  std::vector<CostlyImport> list;
  add_imports(list, times, costly_modules(times), std::nullopt, 0);
  return list;
}

std::set<std::string> costly_packages(const ImportTimes& times) {
  std::set<std::string> packages;
  for (const CostlyImport& import : costly_imports(times))
    packages.emplace(package_of(import.module));
  return packages;
}

std::vector<std::string> lines_about(const ImportTimes& times) {
  if (times.count() == 0)
    return {
        "No Python told of its imports: the command runs none, or one that ignores its "
        "environment (-E, -I)."};
  if (times.seconds() < least_wait)
    return {fmt::format("Its imports took {:.2f} s: there is nothing in them to make shorter.",
                        times.seconds())};
  std::vector<std::string> lines = {fmt::format(
      "Its imports took {:.1f} s of the second start, of {} in {}. What costs most, "
      "with what it imports itself:",
      times.seconds(), count(times.count(), "module"), count(times.interpreters(), "interpreter"))};
  for (const CostlyImport& import : costly_imports(times)) lines.push_back(line_about(import));
  return lines;
}

std::vector<std::string> import_advice(const std::vector<std::string>& command, double seconds,
                                       const ImportMeans& means) {
  if (seconds < least_wait) return {};
  const std::string gain = fmt::format("up to {:.1f} s", seconds);
  std::vector<std::string> advice;
  if (!means.uncompiled.empty())
    advice.push_back("Most modules of " + means.uncompiled +
                     " have no bytecode, so that each start compiles those that it imports: run "
                     "`python -m compileall` on their folders once, or do without "
                     "PYTHONDONTWRITEBYTECODE and `pip install --no-compile`.");
  if (means.snapshots)
    advice.push_back("`weightmap run --snapshot FOLDER -- " + quoted(command.front()) +
                     " ...` restores what has started, without imports: " + gain + " sooner.");
  if (std::string forks = fork_advice(command, gain); !forks.empty())
    advice.push_back(std::move(forks));
  const bool is_lazy = std::ranges::any_of(command, [](const std::string& word) {
    return word.find("lazy_imports=all") != std::string::npos;
  });
  if (!means.lazy_python.empty() && !is_lazy)
    advice.push_back(
        "Python " + printable(means.lazy_python) +
        " can leave out what is never used, by `lazy import`, or everywhere by "
        "PYTHON_LAZY_IMPORTS=all, which torch 2.15 does not survive (docs/serving.md): " +
        gain + " sooner.");
  return advice;
}

}  // namespace weightmap::cli::doctor

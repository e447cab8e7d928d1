#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>
#include <thread>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/options/size_option.hpp"
#include "tools/output/terminal.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_selection.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli {
namespace {

struct UsedOrder {
  std::string file;
  std::size_t tensors;
  std::size_t unmatched_lines;
};

struct Kept {
  std::optional<std::uint64_t> bytes;  // nullopt: not counted
  bool drops_at_open = false;          // the file system; then they are gone soon
};

struct WarmCommand : CommonOptions {
  TensorSelection tensors;
  std::string order;
  bool no_order = false;
  std::optional<UsedOrder> used_order;
  WarmOptions warm;
};

bool takes_all(const WarmCommand& options) {
  return options.order.empty() && options.tensors.patterns.empty() &&
         options.tensors.except.empty();
}

void warn(const std::string& what) {
  std::fprintf(stderr, "weightmap: warning: %s\n", what.c_str());
}

void use_order(const std::string& path, TensorOrder order, WarmCommand& options) {
  options.used_order = UsedOrder{path, order.tensors.size(), order.unmatched_lines};
  options.tensors.also = std::move(order.tensors);
}

Result<void> use_given_order(const Checkpoint& checkpoint, WarmCommand& options) {
  Result<TensorOrder> order = load_tensor_order(checkpoint, options.order);
  if (!order) return tl::unexpected<Error>(order.error());
  if (order->tensors.empty())
    return failure(ErrorCode::invalid_argument,
                   "the order in " + printable(options.order) + " has no lines");
  if (order->unmatched_lines > 0)
    warn(printable(options.order) + ": " + count(order->unmatched_lines, "line") +
         " of the order matched no tensor");
  use_order(options.order, std::move(*order), options);
  return {};
}

// Uses the order file beside the checkpoint, if there is one. Its faults are not fatal, since the
// user did not request it. Unnamed tensors follow at the end.
void use_order_beside(const Checkpoint& checkpoint, WarmCommand& options) {
  const std::string path = options.file + ".order";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  Result<TensorOrder> order = load_tensor_order(checkpoint, path);
  if (!order) return warn(to_string(order.error()) + "; --no-order ignores it");
  if (order->tensors.empty()) return;
  use_order(path, std::move(*order), options);
  std::vector<std::size_t>& all = options.tensors.also;
  all.resize(all.size() + checkpoint.tensors().size());
  std::iota(all.end() - static_cast<std::ptrdiff_t>(checkpoint.tensors().size()), all.end(),
            std::size_t{0});
}

// Chooses the tensors and their order; none for the whole file.
Result<void> choose_tensors(const Checkpoint& checkpoint, WarmCommand& options) {
  if (!options.order.empty()) {
    TRY(use_given_order(checkpoint, options));
  } else if (options.tensors.patterns.empty() && !options.no_order) {
    use_order_beside(checkpoint, options);
  }
  if (takes_all(options) && !options.used_order) return {};
  Result<std::vector<std::size_t>> chosen = select(checkpoint, options.tensors);
  if (!chosen) return tl::unexpected<Error>(chosen.error());
  if (chosen->empty()) return failure(ErrorCode::invalid_argument, "nothing is left to warm");
  options.warm.tensors = std::move(*chosen);
  return {};
}

Result<WarmReport> warm(const Checkpoint& checkpoint, const WarmOptions& options) {
  TRY_ASSIGN(Warmer warmer, Warmer::start(checkpoint, options));
  ProgressBar bar;
  for (WarmProgress progress = warmer.progress(); !progress.finished;
       progress = warmer.progress()) {
    bar.update(progress.bytes_done, progress.bytes_all);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return warmer.wait();
}

// What of the plan is in memory now, as the system counts it.
std::optional<std::uint64_t> count_in_memory(const Checkpoint& checkpoint,
                                             const WarmOptions& options, const WarmReport& report) {
  const Result<ResidencyReport> seen = residency(checkpoint);
  if (!seen) return std::nullopt;  // to others than the owner the system tells nothing
  std::uint64_t missing =
      options.tensors.empty() ? seen->file.file_bytes - seen->file.cached_bytes : 0;
  for (const std::size_t tensor : options.tensors)
    missing += seen->tensors[tensor].extent_bytes - seen->tensors[tensor].cached_bytes;
  missing -= std::min(missing, report.bytes_left_out);
  return report.bytes_done - std::min(report.bytes_done, missing);
}

Json describe_election(const WarmReport& report) {
  return {{"was_reader", report.was_reader},
          {"takeovers", report.takeovers},
          {"bytes_read", report.bytes_read},
          {"bytes_waited_for", report.bytes_waited_for},
          {"why_alone", report.why_alone}};
}

double seconds(const WarmReport& report) {
  return std::chrono::duration<double>(report.time).count();
}

Json describe_crc(const WarmReport& report) {
  Json faults = Json::array();
  for (const Error& fault : report.crc.faults) faults.push_back(describe(fault));
  return {{"storages_checked", report.crc.storages_checked},
          {"storages_without_crc", report.crc.storages_without_crc},
          {"storages_left_out", report.storages_left_out},
          {"faults", faults}};
}

Json describe_order(const WarmCommand& options) {
  if (!options.used_order) return nullptr;
  return {{"file", options.used_order->file},
          {"tensors", options.used_order->tensors},
          {"unmatched_lines", options.used_order->unmatched_lines}};
}

Json describe_warming(const WarmCommand& options, const WarmReport& report, const Kept& kept) {
  const bool has_limit = report.budget_bytes != ~std::uint64_t{0};
  return {{"file", options.file},
          {"tensors", takes_all(options) ? Json(nullptr) : Json(options.warm.tensors.size())},
          {"order", describe_order(options)},
          {"bytes", report.bytes_done},
          {"bytes_in_memory", kept.bytes ? Json(*kept.bytes) : Json(nullptr)},
          {"drops_pages_at_open", kept.drops_at_open},
          {"bytes_left_out", report.bytes_left_out},
          {"budget_bytes", has_limit ? Json(report.budget_bytes) : Json(nullptr)},
          {"budget_reason", report.budget_reason},
          {"method", report.method},
          {"method_reason", report.method_reason},
          {"exact_reads", report.exact_reads},
          {"steps", report.steps},
          {"locked", options.warm.lock},
          {"crc", options.warm.verify_crc ? describe_crc(report) : Json(nullptr)},
          {"one_reader", options.warm.one_reader ? describe_election(report) : Json(nullptr)},
          {"seconds", seconds(report)}};
}

std::string rate(std::uint64_t bytes, double time) {
  return human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / time)) + "/s";
}

void print_crc(Output& out, const WarmReport& report) {
  for (Error fault : report.crc.faults) {
    fault.file.clear();
    out.write("FAULT " + to_string(fault) + "\n");
  }
  out.write((report.crc.faults.empty() ? "OK" : "FAILED") + std::string(" CRC of ") +
            count(report.crc.storages_checked, "storage"));
  if (report.crc.storages_without_crc > 0)
    out.write("; " + count(report.crc.storages_without_crc, "storage") + " had no CRC");
  if (report.storages_left_out > 0)
    out.write("; " + count(report.storages_left_out, "storage") + " not brought in as a whole");
  out.write("\n");
}

std::string kept_words(const WarmReport& report, const Kept& kept) {
  const std::string read = human_bytes(report.bytes_done);
  if (!kept.bytes) return read + " read";
  return (*kept.bytes == report.bytes_done ? read : human_bytes(*kept.bytes) + " of " + read) +
         " in memory";
}

void print_report(Output& out, const WarmCommand& options, const WarmReport& report,
                  const Kept& kept) {
  out.write(fmt::format("{} after {:.3f} s ({})\n", kept_words(report, kept), seconds(report),
                        rate(report.bytes_done, std::max(seconds(report), 1e-6))));
  if (!kept.bytes) out.write("not counted: the system does not tell this user what is in memory\n");
  if (kept.drops_at_open)
    out.write(
        "not kept: the file system drops what is in memory of a file whenever anybody opens the "
        "file;\n"
        "weightmap stage copies it into shared memory\n");
  if (report.bytes_left_out > 0)
    out.write("left out " + human_bytes(report.bytes_left_out) + ": the budget is " +
              human_bytes(report.budget_bytes) +
              (report.budget_reason.empty() ? "" : " (" + report.budget_reason + ")") + "\n");
  if (options.warm.verify_crc) print_crc(out, report);
}

// Locked memory belongs to a process, so this one stays.
void hold(Output& out) {
  const Interruptible interruptible;
  if (!out.finish()) return;
  std::fputs("weightmap: locked in memory until this is interrupted (Ctrl-C)\n", stderr);
  while (!interrupted()) interruptible.sleep_for(std::chrono::seconds(1));
}

Result<int> run_warm(Output& out, WarmCommand& options) {
  TRY_ASSIGN(Checkpoint checkpoint, open_checkpoint(options));
  TRY(about(options, choose_tensors(checkpoint, options)));
  Kept kept;
  kept.drops_at_open = drops_pages_at_open(checkpoint);  // before there is anything to drop
  // Of those who elect a reader, each counts on pages that come in no sooner than they are read.
  options.warm.for_others = !options.warm.lock && !options.warm.one_reader;
  TRY_ASSIGN(const WarmReport report, about(options, warm(checkpoint, options.warm)));
  kept.bytes = count_in_memory(checkpoint, options.warm, report);
  if (options.json)
    out.write(to_text(describe_warming(options, report, kept)) + "\n");
  else
    print_report(out, options, report, kept);
  const bool is_good = report.crc.faults.empty() && (kept.bytes != 0 || report.bytes_done == 0);
  if (options.warm.lock && is_good) hold(out);
  // A --budget was asked for; that memory ends is another thing.
  const bool fits = report.bytes_left_out == 0 || report.budget_reason.empty();
  return is_good && fits ? exit_good : exit_failed;
}

}  // namespace

void add_warm(CLI::App& app, Run& run) {
  auto options = std::make_shared<WarmCommand>();
  CLI::App& command = *app.add_subcommand("warm", "Bring the file, or some tensors, into memory");
  add_common_options(command, *options);
  command
      .add_option("PATTERN", options->tensors.patterns,
                  "Only names that match, in this order, e.g. 'embed*' 'layers.0.*'")
      ->type_name("");
  command.add_option("--except", options->tensors.except, "Leave out names that match")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  CLI::Option* const order =
      command
          .add_option(
              "--order", options->order,
              "Only what this file names, a pattern on each line; without patterns or this,\n"
              "FILE.order comes first if it is there, then the rest")
          ->type_name("FILE");
  command.add_flag("--no-order", options->no_order, "Do not look for FILE.order")->excludes(order);
  command
      .add_option("--threads", options->warm.threads,
                  "How many at once; unless given 2, and 32 on a network")
      ->check(CLI::Range(1, 64))
      ->type_name("N");
  add_size_option(
      command, "--budget", [options](std::uint64_t bytes) { options->warm.budget_bytes = bytes; },
      "Stop after this much, e.g. 2GiB; default: what fits into free memory");
  command.add_flag("--lock", options->warm.lock,
                   "Lock it in memory, and stay until interrupted (Ctrl-C)");
  command.add_flag("--crc", options->warm.verify_crc,
                   "Compare the CRC-32 of each storage as it comes in");
  command.add_flag("--one-reader", options->warm.one_reader,
                   "Of those who warm this file at the same time with this, one reads; the others\n"
                   "wait for what it brings");
  command.footer(
      "What is in memory already costs next to nothing. The pages stay when the command ends, "
      "until\n"
      "the system needs their memory; with --lock it may not take them. What does not fit is left\n"
      "out, which is said, and is a failure (1) unless --budget asks for it.\n"
      "Examples:\n"
      "  weightmap warm model.pt\n"
      "  weightmap warm model.pt 'model.embed*' 'model.layers.0.*'\n"
      "  weightmap warm --except 'optimizer.*' model.pt");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_warm(out, *options); }; });
}

}  // namespace weightmap::cli

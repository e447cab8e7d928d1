#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "tools/command.hpp"
#include "tools/interruptible.hpp"
#include "tools/json_out.hpp"
#include "tools/text.hpp"
#include "weightmap/residency.hpp"
#include "weightmap/tensor_order.hpp"

namespace weightmap::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds interval{5};

struct RecordOptions : CommonOptions {
  std::string output;  // FILE.order if empty
  double seconds = 0;  // 0: until it is interrupted, or every tensor was seen
  bool keep = false;   // do not evict first
};

// Tensors in the order in which they were first seen in the page cache.
class Sightings {
 public:
  explicit Sightings(std::size_t tensors) : cached_(tensors), seen_(tensors) {}

  // What is there before the recording begins does not count, only what is added to it.
  void begin(const ResidencyReport& report) {
    for (const TensorResidency& tensor : report.tensors)
      cached_[tensor.index] = tensor.cached_bytes;
  }

  void look(const ResidencyReport& report) {
    for (const TensorResidency& tensor : report.tensors) {
      if (seen_[tensor.index] || tensor.cached_bytes <= cached_[tensor.index]) continue;
      seen_[tensor.index] = true;
      order_.push_back(tensor.index);
    }
  }

  const std::vector<std::size_t>& order() const noexcept { return order_; }
  bool complete() const noexcept { return order_.size() == seen_.size(); }

 private:
  std::vector<std::uint64_t> cached_;
  std::vector<bool> seen_;
  std::vector<std::size_t> order_;
};

Result<void> evict_first(const RecordOptions& options) {
  if (options.keep) return {};
  const Result<EvictReport> evicted = evict(options.file);
  if (!evicted) return tl::unexpected<Error>(evicted.error());
  return {};
}

Result<std::vector<std::size_t>> record(const Checkpoint& checkpoint,
                                        const RecordOptions& options) {
  Sightings sightings(checkpoint.tensors().size());
  const Result<ResidencyReport> before = residency(checkpoint);
  if (!before) return tl::unexpected<Error>(before.error());
  sightings.begin(*before);
  const Interruptible interruptible;
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  while (!interrupted() && !sightings.complete() && (options.seconds == 0 || Clock::now() < end)) {
    interruptible.sleep_for(interval);
    const Result<ResidencyReport> report = residency(checkpoint);
    if (!report) return tl::unexpected<Error>(report.error());
    sightings.look(*report);
  }
  return sightings.order();
}

Result<int> run_record(Output& out, const RecordOptions& options) {
  if (Result<void> ok = evict_first(options); !ok)
    return tl::unexpected<Error>(about(options, ok.error()));
  const Result<Checkpoint> checkpoint = open_checkpoint(options);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const Result<std::vector<std::size_t>> order = record(*checkpoint, options);
  if (!order) return tl::unexpected<Error>(about(options, order.error()));
  const std::string path = options.output.empty() ? options.file + ".order" : options.output;
  if (Result<void> ok = save_tensor_order(*checkpoint, *order, path); !ok)
    return tl::unexpected<Error>(ok.error());
  const std::size_t all = checkpoint->tensors().size();
  if (options.json)
    out.write(to_text({{"file", options.file},
                       {"order", path},
                       {"tensors", all},
                       {"tensors_seen", order->size()}}) +
              "\n");
  else
    out.write(std::to_string(order->size()) + " of " + count(all, "tensor") + " were read; " +
              printable(path) + " has their order\n");
  return exit_good;
}

}  // namespace

void add_record(CLI::App& app, Run& run) {
  auto options = std::make_shared<RecordOptions>();
  CLI::App& command =
      *app.add_subcommand("record", "Write down in which order tensors are first read");
  add_common_options(command, *options);
  command.add_option("-o,--output", options->output, "Where to; FILE.order if not given")
      ->type_name("ORDER");
  command.add_option("--for", options->seconds, "Stop after so many seconds")
      ->check(CLI::PositiveNumber)
      ->type_name("SECONDS");
  command.add_flag("--keep", options->keep, "Do not evict the file first");
  command.footer(
      "Evicts the file and watches the page cache while something else reads the file, until it "
      "is\n"
      "interrupted (Ctrl-C) or every tensor was read. What the system reads ahead looks as if it "
      "had\n"
      "been read.\n"
      "Examples:\n"
      "  weightmap record model.pt          # and start the program that reads it\n"
      "  weightmap warm model.pt            # in the order of model.pt.order");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_record(out, *options); }; });
}

}  // namespace weightmap::cli

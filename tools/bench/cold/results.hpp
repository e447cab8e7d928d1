// The measurements of `weightmap bench`: plain data from the runner, for the reports.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weightmap::cli::bench {

// The state of the file before every sample.
enum class Scenario : std::uint8_t {
  cold,      // nothing in the page cache, which is checked
  warm,      // all of it in the page cache, in pages as large as the system makes them
  poisoned,  // all of it in the page cache, in pages of 4 KiB
};
// The order in which the consumer reads tensors. The named tensor always comes first.
enum class Order : std::uint8_t {
  file,
  random,  // a fixed shuffle
};
std::string_view to_string(Scenario scenario) noexcept;
std::string_view to_string(Order order) noexcept;

// One fresh process. Times are milliseconds from the beginning of the open; starting the process
// and importing libraries do not count. Other figures are the growth since then.
struct Sample {
  double open_ms = 0;          // until tensors can be looked up
  double first_byte_ms = 0;    // until one byte of the named tensor was read
  double first_tensor_ms = 0;  // until all of its bytes were read
  double all_ms = 0;           // until all bytes of all tensors were read
  std::uint64_t disk_bytes = 0;
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  std::uint64_t anonymous_bytes = 0;  // RssAnon, at the end
  std::uint64_t file_bytes = 0;       // RssFile, at the end
  std::uint64_t checksum = 0;         // of all bytes; equal for all engines
  // Observed from outside, for the file that the engine reads.
  std::uint64_t cached_before = 0;
  std::uint64_t cached_after = 0;
  // The part in pages of 2 MiB, 0 to 1, of a sample of the page cache after the engine.
  std::optional<double> huge_part_after;
};

// One engine in one scenario and order.
struct Series {
  std::string engine;
  Scenario scenario = Scenario::cold;
  Order order = Order::file;
  std::vector<Sample> samples;  // one for each round; empty if not measured
  std::string why_not;          // the reason; empty if it was measured
  unsigned discarded = 0;       // samples that a check discarded and repeated
};

struct Engine {
  std::string name;     // "populate", "torch-mmap"; used by --engines
  std::string title;    // "weightmap, MADV_POPULATE_READ", "torch.load(mmap=True) 2.13.0"
  std::string why_not;  // the reason why it cannot be measured here; empty if it can
};

struct FileResults {
  std::string path;
  std::uint64_t file_bytes = 0;
  std::uint64_t tensors = 0;  // measured ones: contiguous, not empty, with a unique name
  std::uint64_t tensors_left_out = 0;
  std::uint64_t tensor_bytes = 0;  // of the measured tensors
  std::string named_tensor;        // the first in both orders
  std::uint64_t named_tensor_bytes = 0;
  std::vector<Series> series;
};

struct Machine {
  std::string processor;
  unsigned cores = 0;
  std::uint64_t memory_bytes = 0;
  std::string kernel;
  std::string file_system;
  std::string device;
  std::optional<std::uint64_t> read_ahead_bytes;  // of the device
  std::string huge_pages;                         // "madvise"
  std::string date;                               // "2026-11-21"
};

struct Results {
  Machine machine;
  std::string version;          // of weightmap
  unsigned rounds = 0;          // samples of each series
  std::string reference;        // ratios are relative to this engine
  std::string again;            // the reference's second measurement, for the A/A check
  bool recycled_memory = true;  // memory was touched and freed before each sample
  std::vector<Engine> engines;  // in the order of the reports
  std::vector<FileResults> files;
  std::vector<std::string> warnings;  // important for the interpretation of the figures
};

// A figure of a sample by name, for reports that show all of them.
struct Field {
  std::string_view name;  // as in Sample
  std::variant<double Sample::*, std::uint64_t Sample::*, std::optional<double> Sample::*> member;
};

// All figures except the checksum, which is not a quantity.
inline constexpr std::array<Field, 12> fields = {{
    {"open_ms", &Sample::open_ms},
    {"first_byte_ms", &Sample::first_byte_ms},
    {"first_tensor_ms", &Sample::first_tensor_ms},
    {"all_ms", &Sample::all_ms},
    {"disk_bytes", &Sample::disk_bytes},
    {"minor_faults", &Sample::minor_faults},
    {"major_faults", &Sample::major_faults},
    {"anonymous_bytes", &Sample::anonymous_bytes},
    {"file_bytes", &Sample::file_bytes},
    {"cached_before", &Sample::cached_before},
    {"cached_after", &Sample::cached_after},
    {"huge_part_after", &Sample::huge_part_after},
}};

// Returns one value for each sample that has it, in the order of the rounds.
std::vector<double> values(const Series& series, const Field& field);
std::vector<double> values(const Series& series, double Sample::*member);

}  // namespace weightmap::cli::bench

#include "tools/hold/metrics_file.hpp"

#include <fstream>
#include <system_error>

#include "tools/support/files.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::hold {
namespace {

std::string quoted(const Json& path) {
  const std::string text = Json::parse(to_text(path)).get<std::string>();
  std::string label = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') label += '\\';
    label += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return label + "\"";
}

// The lines of one metric; none without a known sample.
class Family {
 public:
  Family(std::string_view name, std::string_view type, std::string_view help) : name_(name) {
    const std::string begin = "# HELP " + name_ + " ";
    head_ = begin + std::string(help) + "\n# TYPE " + name_ + " " + std::string(type) + "\n";
  }

  void add(const std::string& labels, std::uint64_t value) {
    samples_ += name_ + labels + " " + std::to_string(value) + "\n";
  }
  std::string text() const { return samples_.empty() ? "" : head_ + samples_; }

 private:
  std::string name_;
  std::string head_;
  std::string samples_;
};

struct Figure {
  const char* key;  // key of a file in the status
  const char* name;
  const char* type;
  const char* help;
};

constexpr Figure figures[] = {
    {"file_bytes", "weightmap_file_bytes", "gauge", "Size of the version that is held."},
    {"resident_bytes", "weightmap_resident_bytes", "gauge", "Bytes that the daemon has mapped."},
    {"cached_bytes", "weightmap_cached_bytes", "gauge", "Bytes in the page cache."},
    {"locked", "weightmap_locked", "gauge", "1 if the system may not take the memory."},
    {"bytes_left_out", "weightmap_left_out_bytes", "gauge",
     "Bytes that did not fit into free memory."},
    {"evicted_bytes", "weightmap_evicted_bytes_total", "counter",
     "Bytes that were in memory before, and that a look found taken from it."},
    {"reloads", "weightmap_generation_changes_total", "counter",
     "How often a new version took the place of the held one."},
    {"elections", "weightmap_reader_elections_total", "counter",
     "Warm-ups for which the daemon was elected to read from the disk."},
};

std::optional<std::uint64_t> number(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<std::uint64_t>();
}

namespace fs = std::filesystem;

// Returns the kernel's count for all threads of this process; some kernels lack it.
std::optional<std::uint64_t> read_bytes() {
  std::ifstream counts("/proc/self/io");
  std::uint64_t bytes = 0;
  for (std::string word; counts >> word;)
    if (word == "read_bytes:" && counts >> bytes) return bytes;
  return std::nullopt;
}

bool may_be_replaced(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return true;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::ifstream file(path);
  std::string line;
  return !std::getline(file, line) ? file.eof() : line.starts_with("# HELP weightmap_");
}

}  // namespace

std::string metrics_text(const Json& status, std::optional<std::uint64_t> read_bytes) {
  std::string text;
  for (const Figure& figure : figures) {
    Family family(figure.name, figure.type, figure.help);
    for (const Json& file : status["files"])
      if (const auto value = number(file[figure.key]))
        family.add("{checkpoint=" + quoted(file["file"]) + "}", *value);
    text += family.text();
  }
  Family read("weightmap_read_bytes_total", "counter",
              "Bytes that the storage read for the daemon, metadata among them.");
  if (read_bytes) read.add("", *read_bytes);
  return text + read.text();
}

Result<MetricsFile> MetricsFile::at(const fs::path& path) {
  if (!may_be_replaced(path))
    return failure(ErrorCode::invalid_argument,
                   printable(path.native()) + " exists and is no metrics of a daemon");
  return MetricsFile(fs::absolute(path));
}

MetricsFile::~MetricsFile() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove(path_, ignored);
}

Result<void> MetricsFile::write(const Json& status) const {
  return replace_file(path_, metrics_text(status, read_bytes()));
}

}  // namespace weightmap::cli::hold

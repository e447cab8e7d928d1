#include "tools/hold/metrics_file.hpp"

#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "runtime/base/try.hpp"
#include "tools/hold/metrics_text.hpp"
#include "tools/support/text.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::cli::hold {
namespace {

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
  NewFileOptions options;
  options.durable = false;
  TRY_ASSIGN(NewFile file, NewFile::create(path_, options));
  const std::string text = metrics_text(status, read_bytes());
  if (Result<void> written = file.write(std::as_bytes(std::span(text))); !written) return written;
  return file.commit();
}

}  // namespace weightmap::cli::hold

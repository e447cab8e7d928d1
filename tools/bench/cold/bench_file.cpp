#include "tools/bench/cold/bench_file.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/wanted_tensors.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/safetensors_writer.hpp"

namespace weightmap::cli::bench {
namespace {

namespace fs = std::filesystem;

template <class T>
Result<T> about(const std::string& path, Result<T> result) {
  if (!result && result.error().file.empty()) result.error().file = printable(path);
  return result;
}

Result<std::string> choose_named(const std::vector<NamedTensor>& tensors,
                                 const std::string& named) {
  if (tensors.empty())
    return failure(ErrorCode::invalid_argument, "has no tensor that can be measured");
  if (named.empty()) return std::string(usual_named_tensor(tensors).name);
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& tensor) { return tensor.name == named; });
  if (found == tensors.end())
    return failure(ErrorCode::invalid_argument,
                   "has no tensor \"" + printable(named) + "\" that can be measured");
  return named;
}

FileResults describe(const Checkpoint& checkpoint, const std::string& path,
                     const std::vector<NamedTensor>& tensors, const std::string& named) {
  FileResults file;
  file.path = path;
  file.file_bytes = checkpoint.info().file_bytes;
  file.tensors = tensors.size();
  file.tensors_left_out = checkpoint.tensors().size() - tensors.size();
  file.tensor_bytes = total_bytes(tensors);
  file.named_tensor = named;
  file.named_tensor_bytes = checkpoint.find(named)->nbytes();
  return file;
}

// Counts files without the memory of inflated storages.
std::size_t count_files(const Checkpoint& checkpoint) {
  std::size_t files = 0;
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i)
    if (!checkpoint.source(i).is_copy) ++files;
  return files;
}

Result<TemporaryFolder> write_orders(const std::vector<NamedTensor>& tensors,
                                     const std::string& named) {
  Result<TemporaryFolder> folder = TemporaryFolder::create(fs::temp_directory_path());
  if (!folder) return folder;
  for (const Order order : {Order::file, Order::random}) {
    std::ofstream file(folder->path() / to_string(order));
    file << Json(consumer_order(tensors, order, named)) << std::flush;
    if (!file.good()) return failure(ErrorCode::io, "cannot write the order of tensors");
  }
  return folder;
}

// The tensors that are measured, each by itself, whatever they share.
Result<void> write_converted(const std::string& from, const fs::path& target) {
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(from));
  std::vector<SafetensorsTensor> tensors;
  for (const NamedTensor& tensor : eligible_tensors(checkpoint)) {
    TRY_ASSIGN(SafetensorsTensor made,
               SafetensorsTensor::of(std::string(tensor.name), tensor.view));
    tensors.push_back(std::move(made));
  }
  SafetensorsOptions options;
  options.shared = SharedElements::copy;
  options.progress = [](std::uint64_t, std::uint64_t) { return !interrupted(); };
  TRY(write_safetensors(std::move(tensors), {}, target, options));
  return {};
}

}  // namespace

BenchFile::BenchFile(FileResults description, Format format, std::size_t files, std::uint64_t sum,
                     TemporaryFolder orders, WatchedFile checkpoint) noexcept
    : description_(std::move(description)),
      format_(format),
      files_(files),
      checksum_(sum),
      orders_(std::move(orders)),
      checkpoint_(std::move(checkpoint)) {}

Result<BenchFile> BenchFile::open(const std::string& path, const std::string& named) {
  TRY_ASSIGN(const Checkpoint checkpoint, about(path, Checkpoint::open(path)));
  if (checkpoint.info().format == Format::dcp) TRY(about(path, verify_headers(checkpoint)));
  const std::vector<NamedTensor> tensors = eligible_tensors(checkpoint);
  TRY_ASSIGN(const std::string first, about(path, choose_named(tensors, named)));
  TRY_ASSIGN(TemporaryFolder orders, write_orders(tensors, first));
  TRY_ASSIGN(WatchedFile watched, about(path, WatchedFile::open(path)));
  std::uint64_t sum = 0;
  for (const NamedTensor& tensor : tensors) sum += bench::checksum(tensor.view.bytes());
  return BenchFile(describe(checkpoint, path, tensors, first), checkpoint.info().format,
                   count_files(checkpoint), sum, std::move(orders), std::move(watched));
}

bool BenchFile::is_torch_file() const noexcept {
  return files_ == 1 && (is_torch_archive(format_) || format_ == Format::torch_legacy);
}

WhyNot BenchFile::why_not(Reads reads) const {
  const std::string format(to_string(format_));
  const std::string what =
      files_ == 1 ? format : format + " in " + std::to_string(files_) + " files";
  switch (reads) {
    case Reads::any:
      return {};
    case Reads::torch:
      return is_torch_file() ? WhyNot() : "reads one file of torch, and this is " + what;
    case Reads::safetensors:
      return is_torch_file() || format_ == Format::safetensors
                 ? WhyNot()
                 : "reads safetensors, and this is " + what;
  }
  return "no such format";
}

std::string BenchFile::order_file(Order order) const {
  return (orders_.path() / to_string(order)).string();
}

Result<WhyNot> BenchFile::convert() {
  const fs::path parent = fs::absolute(description_.path).parent_path();
  Result<TemporaryFolder> folder = TemporaryFolder::create(parent);
  if (!folder) return to_string(folder.error());
  const fs::path target = folder->path() / "model.safetensors";
  const Result<void> written = write_converted(description_.path, target);
  TRY(go_on());
  if (!written) return "cannot be converted to safetensors: " + to_string(written.error());
  Result<WatchedFile> watched = WatchedFile::open(target.string());
  if (!watched) return to_string(watched.error());
  safetensors_.emplace(std::move(*watched));
  converted_.emplace(std::move(*folder));
  return WhyNot();
}

void BenchFile::release() noexcept {
  checkpoint_.release();
  if (safetensors_) safetensors_->release();
}

}  // namespace weightmap::cli::bench

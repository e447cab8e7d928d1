#include "bench/cold/bench_file.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "bench/cold/checksum.hpp"
#include "bench/cold/process.hpp"
#include "bench/cold/python_source.hpp"
#include "bench/cold/wanted_tensors.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

namespace fs = std::filesystem;

Error about(const std::string& path, Error error) {
  if (error.file.empty()) error.file = printable(path);
  return error;
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
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return tl::unexpected<Error>(about(path, checkpoint.error()));
  const std::vector<NamedTensor> tensors = eligible_tensors(*checkpoint);
  const Result<std::string> first = choose_named(tensors, named);
  if (!first) return tl::unexpected<Error>(about(path, first.error()));
  Result<TemporaryFolder> orders = write_orders(tensors, *first);
  if (!orders) return tl::unexpected<Error>(orders.error());
  Result<WatchedFile> watched = WatchedFile::open(path);
  if (!watched) return tl::unexpected<Error>(about(path, watched.error()));
  std::uint64_t sum = 0;
  for (const NamedTensor& tensor : tensors) sum += bench::checksum(tensor.view.bytes());
  return BenchFile(describe(*checkpoint, path, tensors, *first), checkpoint->info().format,
                   count_files(*checkpoint), sum, std::move(*orders), std::move(*watched));
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
    case Reads::gguf:
      return format_ == Format::gguf ? WhyNot() : "reads GGUF, and this is " + what;
    case Reads::dcp:
      return format_ == Format::dcp
                 ? WhyNot()
                 : "reads folders of torch.distributed.checkpoint, and this is " + what;
  }
  return "no such format";
}

std::string BenchFile::order_file(Order order) const {
  return (orders_.path() / to_string(order)).string();
}

Result<WhyNot> BenchFile::convert(const std::string& python) {
  const fs::path parent = fs::absolute(description_.path).parent_path();
  const std::uint64_t needed = description_.tensor_bytes + (std::uint64_t{64} << 20);
  std::error_code error;
  const fs::space_info space = fs::space(parent, error);
  if (!error && space.available < needed)
    return "a conversion to safetensors needs " + human_bytes(needed) + " beside the file, where " +
           human_bytes(space.available) + " are free";
  Result<TemporaryFolder> folder = TemporaryFolder::create(parent);
  if (!folder) return to_string(folder.error());
  const fs::path target = folder->path() / "model.safetensors";
  const Result<Finished> done =
      run_process({python, "-c", std::string(python_source()), "--convert", description_.path,
                   target.string(), order_file(Order::file)});
  if (!done) return tl::unexpected<Error>(done.error());
  if (done->exit_code != 0) return "cannot be converted to safetensors: " + failure_text(*done);
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

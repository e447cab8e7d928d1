#include <algorithm>
#include <unordered_map>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/write/conversion.hpp"

namespace weightmap {
namespace {

// Moves the tensors that `order` names to the front.
Result<void> put_in_order(std::vector<SourceTensor>& tensors,
                          const std::vector<std::string>& order) {
  std::unordered_map<std::string_view, std::size_t> ranks;
  for (const std::string& name : order) ranks.emplace(name, ranks.size());
  std::size_t found = 0;
  for (const SourceTensor& tensor : tensors) found += ranks.count(tensor.name);
  if (found < ranks.size()) {
    for (const SourceTensor& tensor : tensors) ranks.erase(tensor.name);
    const auto missing =
        std::ranges::find_if(order, [&](const std::string& name) { return ranks.contains(name); });
    return failure(ErrorCode::not_found,
                   "there is no tensor " + bytes::quote(*missing) + " to come first");
  }
  std::ranges::stable_sort(tensors, {}, [&](const SourceTensor& tensor) {
    const auto rank = ranks.find(tensor.name);
    return rank == ranks.end() ? ranks.size() : rank->second;
  });
  return {};
}

// True if the file is this tensor, so nothing in it names it.
bool is_bare(const Checkpoint& checkpoint, const WholeTensor& tensor) {
  return tensor.piece_count == 1 && checkpoint.path(tensor.first_piece).empty();
}

}  // namespace

ConversionSources::ConversionSources(std::vector<std::filesystem::path> paths,
                                     std::vector<Checkpoint> checkpoints)
    : paths_(std::move(paths)), checkpoints_(std::move(checkpoints)) {
  for (const std::filesystem::path& path : paths_) {
    std::string stem = path.stem().native();
    stems_.push_back(bytes::is_utf8(stem) ? std::move(stem) : "tensor");
  }
}

Result<ConversionSources> ConversionSources::open(std::span<const std::filesystem::path> paths,
                                                  const OpenOptions& options) {
  std::vector<Checkpoint> checkpoints;
  for (const std::filesystem::path& path : paths) {
    TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path, options));
    if (checkpoint.info().reserved && !checkpoint.info().reserved->is_sealed)
      return about_file({ErrorCode::unsupported,
                         "the file has reserved storages and is not sealed, so it may change yet"},
                        path);
    checkpoints.push_back(std::move(checkpoint));
  }
  if (checkpoints.empty())
    return failure(ErrorCode::invalid_argument, "there is no checkpoint to convert");
  return ConversionSources({paths.begin(), paths.end()}, std::move(checkpoints));
}

std::uint64_t ConversionSources::bytes() const noexcept {
  std::uint64_t all = 0;
  for (const Checkpoint& checkpoint : checkpoints_) all += checkpoint.info().file_bytes;
  return all;
}

bool ConversionSources::is_one(Format format) const noexcept {
  const Checkpoint& first = checkpoints_.front();
  const bool is_set = first.source_count() > 1 && !first.source(1).is_copy;
  return checkpoints_.size() == 1 && !is_set && first.info().format == format;
}

tl::unexpected<Error> ConversionSources::refuse_values(
    const std::vector<std::string>& left_out) const {
  constexpr std::size_t most = 3;
  std::string names;
  for (std::size_t i = 0; i < std::min(left_out.size(), most); ++i)
    names += (i == 0 ? "" : ", ") + bytes::quote(left_out[i]);
  if (left_out.size() > most) names += " and " + std::to_string(left_out.size() - most) + " more";
  const bool can_keep = is_one(Format::pickle) || is_one(Format::torch_zip) ||
                        is_one(Format::torch_legacy) ||
                        checkpoints_.front().info().format == Format::dcp;
  return about_file({ErrorCode::unsupported,
                     "has no tensors, so nothing would be written of what it holds (" + names +
                         "); " + (can_keep ? "a .pt without --tensors-only keeps it, and " : "") +
                         "root() and weightmap cat read it"},
                    paths_.front());
}

Result<std::vector<SourceTensor>> ConversionSources::tensors(
    const std::vector<std::string>& order) const {
  std::vector<SourceTensor> all;
  std::unordered_map<std::string_view, std::size_t> checkpoint_of;
  for (std::size_t i = 0; i < checkpoints_.size(); ++i)
    for (std::string_view name : whole_names(checkpoints_[i])) {
      Result<WholeTensor> whole = whole_tensor(checkpoints_[i], name);
      if (!whole) return about_file(std::move(whole).error(), paths_[i]);
      if (is_bare(checkpoints_[i], *whole)) name = stems_[i];
      const auto [first, is_new] = checkpoint_of.emplace(name, i);
      if (!is_new && first->second != i)
        return about_file(
            {ErrorCode::invalid_argument, "has " + bytes::escape(name) + ", and so has " +
                                              bytes::escape(paths_[first->second].native())},
            paths_[i]);
      all.push_back({&checkpoints_[i], name, *std::move(whole)});
    }
  if (!order.empty()) TRY(put_in_order(all, order));
  return all;
}

}  // namespace weightmap

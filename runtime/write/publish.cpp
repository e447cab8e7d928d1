#include "weightmap/publish.hpp"

#include <optional>
#include <system_error>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/os/write/publish_file.hpp"

namespace weightmap {
namespace {

// Returns a missing path unchanged, so that opening it reports the error.
std::filesystem::path without_links(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  return failed ? path : real;
}

// Checks that the checkpoint is one file, as an atomic replacement needs. Returns its generation.
Result<Generation> check_checkpoint(const std::filesystem::path& from,
                                    const PublishOptions& options) {
  OpenOptions to_look = OpenOptions::to_look();
  if (options.verify_crc) to_look.verify = Verify::crc;
  to_look.progress = options.progress;
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(from, to_look));
  if (Checkpoint::Access::state(checkpoint).is_set())
    return about_file({ErrorCode::unsupported,
                       "is a checkpoint of several files, which cannot be replaced at one moment: "
                       "give each version a folder, and let a symbolic link say which is current"},
                      from);
  return checkpoint.generation();
}

}  // namespace

Result<PublishReport> publish(const std::filesystem::path& named,
                              const std::filesystem::path& target, const PublishOptions& options) {
  const std::filesystem::path from = options.follow ? without_links(named) : named;
  std::optional<Generation> checked;
  if (!options.any_content) {
    TRY_ASSIGN(checked, check_checkpoint(from, options));
  }
  const Result<os::File> file = os::File::open(from, false);
  if (!file) return about_file(file.error(), from);
  if (checked && !checked->same_content(file->generation()))
    return about_file({ErrorCode::io, "was replaced while it was looked at", Error::no_offset, {}},
                      from);
  const Result<os::PublishedFile> published =
      os::publish_file(*file, from, target, {options.copy, options.progress});
  if (!published) return about_file(published.error(), target);
  return PublishReport{published->generation, published->replaced, published->copied, file->size()};
}

}  // namespace weightmap

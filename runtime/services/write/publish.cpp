#include <optional>
#include <string>
#include <system_error>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/system/write/publish_file.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {
namespace {

// Returns a missing path unchanged, so that opening it reports the error.
std::filesystem::path without_links(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  return failed ? path : real;
}

// What the programs that open a file by this name expect; unknown if the name does not tell.
Format promised_by(const std::filesystem::path& name) {
  std::string ending = name.extension().native();
  for (char& c : ending) c = 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (ending == ".safetensors") return Format::safetensors;
  if (ending == ".gguf") return Format::gguf;
  return ending == ".npz" ? Format::npz : Format::unknown;
}

// torch.load() reads both of torch.save()'s.
bool is_alike(Format one, Format other) {
  const auto is_saved = [](Format format) {
    return format == Format::torch_zip || format == Format::torch_legacy;
  };
  return one == other || (is_saved(one) && is_saved(other));
}

Result<void> check_format(Format made, const std::filesystem::path& target) {
  std::error_code unknown;
  Format found = promised_by(target);
  const bool is_file = std::filesystem::is_regular_file(target, unknown);
  const Result<Checkpoint> old = is_file ? Checkpoint::open(target, OpenOptions::to_look())
                                         : failure(ErrorCode::not_found, "");
  if (old) found = old->info().format;
  const std::string rest = ", and the new file is " + std::string(to_string(made)) +
                           ", which programs that open it by this name may be unable to read: "
                           "convert it first, or publish it all the same (--force, any_format)";
  if (found != Format::unknown && !is_alike(made, found))
    return about_file({ErrorCode::invalid_argument,
                       (old ? "is " : "has the name of ") + std::string(to_string(found)) + rest},
                      target);
  return {};
}

// Refuses what opens, but is no file that can be renamed.
Result<void> check_is_file(const std::filesystem::path& from, const Checkpoint& checkpoint) {
  std::error_code unknown;
  if (std::filesystem::is_regular_file(from, unknown)) return {};
  const std::string inside = bytes::quote(checkpoint.source(0).path.native(), 4096);
  const bool is_member = checkpoint.source(0).path.has_parent_path() &&
                         !std::filesystem::is_directory(from, unknown) &&
                         from.native().find("//") != std::string::npos;
  return about_file(
      {ErrorCode::unsupported,
       is_member ? "is a member of an archive: extract it, and publish what that makes"
                 : "is a folder or the name of a model: publish the file in it, " + inside +
                       ", by its own name",
       Error::no_offset,
       {}},
      from);
}

// Checks that the checkpoint is one file, as an atomic replacement needs, and of the format that
// the target has. Returns its generation.
Result<Generation> check_checkpoint(const std::filesystem::path& from,
                                    const std::filesystem::path& target,
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
  TRY(check_is_file(from, checkpoint));
  if (!options.any_format) TRY(check_format(checkpoint.info().format, target));
  return checkpoint.source(0).generation;
}

}  // namespace

Result<PublishReport> publish(const std::filesystem::path& named,
                              const std::filesystem::path& target, const PublishOptions& options) {
  const std::filesystem::path from = options.follow ? without_links(named) : named;
  std::optional<Generation> checked;
  if (!options.any_content) {
    TRY_ASSIGN(checked, check_checkpoint(from, target, options));
  }
  TRY_ASSIGN(const os::File file, about_file(os::File::open(from, false), from));
  if (checked && !checked->same_content(file.generation()))
    return about_file({ErrorCode::io, "was replaced while it was looked at", Error::no_offset, {}},
                      from);
  TRY_ASSIGN(
      const os::PublishedFile published,
      about_file(os::publish_file(file, from, target, {options.copy, options.progress}), target));
  return PublishReport{published.generation, published.replaced, published.copied, file.size()};
}

}  // namespace weightmap

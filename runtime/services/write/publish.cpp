#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/system/file/version_link.hpp"
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
  const bool is_there = std::filesystem::exists(target, unknown);
  const Result<Checkpoint> old = is_there ? Checkpoint::open(target, OpenOptions::to_look())
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

// Refuses what opens, but is neither a file nor a folder of its own.
Result<void> check_has_name(const std::filesystem::path& from) {
  std::error_code unknown;
  const bool is_there = std::filesystem::exists(from, unknown);
  if (is_there) return {};
  return about_file({ErrorCode::unsupported,
                     from.native().find("//") != std::string::npos
                         ? "is a member of an archive: extract it, and publish what that makes"
                         : "is the name of a model of the hub: publish a folder or a file"},
                    from);
}

OpenOptions how_to_look(const PublishOptions& options) {
  OpenOptions to_look = OpenOptions::to_look();
  if (options.verify_crc) to_look.verify = Verify::crc;
  to_look.progress = options.progress;
  return to_look;
}

// Checks that the checkpoint is one file, as the replacement of a file needs, and of the format
// that the target has. Returns its generation.
Result<Generation> check_file(const std::filesystem::path& from,
                              const std::filesystem::path& target, const PublishOptions& options) {
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(from, how_to_look(options)));
  if (Checkpoint::Access::state(checkpoint).is_set())
    return about_file({ErrorCode::unsupported,
                       "is a checkpoint of several files, which cannot be replaced at one moment: "
                       "give each version a folder, and publish that under a symbolic link"},
                      from);
  TRY(check_has_name(from));
  if (!options.any_format) TRY(check_format(checkpoint.info().format, target));
  return checkpoint.source(0).generation;
}

// Leads a symbolic link to the folder.
Result<PublishReport> publish_folder(const std::filesystem::path& from,
                                     const std::filesystem::path& target,
                                     const PublishOptions& options) {
  if (options.copy)
    return about_file(
        {ErrorCode::invalid_argument,
         "is a folder, which is published where it is: copy it beside the link first"},
        from);
  PublishReport report;
  TRY_ASSIGN(report.generation, generation_at(from));
  if (!options.any_content) {
    TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(from, how_to_look(options)));
    if (!options.any_format) TRY(check_format(checkpoint.info().format, target));
    report.generation = checkpoint.source(0).generation;
  }
  Result<os::VersionLink> link = os::VersionLink::at(target);
  if (!link)
    return about_file({ErrorCode::invalid_argument,
                       link.error().message +
                           ": a folder is published under a link, as `ln -s` makes one; move this "
                           "to the name of its version, and publish that first"},
                      target);
  TRY(os::sync_folder(from));
  report.previous = link->current();
  report.replaced = !report.previous.empty();
  for (const std::filesystem::path& file : os::files_below(from)) {
    TRY_ASSIGN(const Generation found, generation_at(file));
    report.bytes += found.size;
  }
  TRY(about_file(link->lead_to(from), target));
  return report;
}

}  // namespace

Result<PublishReport> publish(const std::filesystem::path& named,
                              const std::filesystem::path& target, const PublishOptions& options) {
  const std::filesystem::path from = options.follow ? without_links(named) : named;
  std::error_code unknown;
  if (std::filesystem::symlink_status(from, unknown).type() ==
      std::filesystem::file_type::directory)
    return publish_folder(from, target, options);
  std::optional<Generation> checked;
  if (!options.any_content) {
    TRY_ASSIGN(checked, check_file(from, target, options));
  }
  TRY_ASSIGN(const os::File file, about_file(os::File::open(from, false), from));
  if (checked && !checked->same_content(file.generation()))
    return about_file({ErrorCode::io, "was replaced while it was looked at", Error::no_offset, {}},
                      from);
  TRY_ASSIGN(
      const os::PublishedFile published,
      about_file(os::publish_file(file, from, target, {options.copy, options.progress}), target));
  return PublishReport{published.generation, published.replaced, published.copied, file.size(), {}};
}

}  // namespace weightmap

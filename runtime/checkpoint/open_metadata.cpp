#include <string>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/arriving_file.hpp"
#include "runtime/checkpoint/open.hpp"
#include "weightmap/remote.hpp"

namespace weightmap {
namespace {

Result<void> check_reads_metadata(const OpenOptions& options) {
  const auto refuse = [](const std::string& option) {
    return failure(ErrorCode::unsupported,
                   option +
                       " needs all bytes of a remote checkpoint, and only its metadata is "
                       "read; stage or fetch it");
  };
  if (options.writable.value_or(false)) return refuse("writable");
  if (options.populate.value_or(false)) return refuse("populate");
  if (options.locked.value_or(false)) return refuse("locked");
  if (options.verify == Verify::crc) return refuse("verify=crc");
  return {};
}

// Without those of the environment that concern the bytes.
Result<OpenOptions> complete(OpenOptions options) {
  const OpenOptions look = OpenOptions::to_look();
  if (!options.verify) options.verify = look.verify;
  options.writable = look.writable;
  options.populate = look.populate;
  options.locked = look.locked;
  options.protection = look.protection;
  return with_defaults(std::move(options));
}

Result<Checkpoint> open_source(std::shared_ptr<RangeSource> source, const OpenOptions& options) {
  if (!options.variant.empty())
    return failure(ErrorCode::unsupported,
                   "a variant is chosen among the files of a folder; of a store, name the file "
                   "itself, such as hf://org/name/model.fp16.safetensors");
  TRY(check_reads_metadata(options));
  TRY_ASSIGN(const OpenOptions all, complete(options));
  TRY_ASSIGN(std::shared_ptr<ArrivingFile> file, ArrivingFile::in_memory(std::move(source)));
  return open_arriving(std::move(file), all, ViewMemory::none);
}

}  // namespace

Result<Checkpoint> open_metadata(std::unique_ptr<RangeSource> source, const OpenOptions& options) {
  const std::string name = shown_name(source->name());
  Result<Checkpoint> opened = open_source(std::move(source), options);
  if (!opened) return about_shown(std::move(opened.error()), name);
  return opened;
}

}  // namespace weightmap

#include "runtime/services/fetch/fetched_version.hpp"

#include <span>

#include "runtime/base/bytes/sha256.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/file/file_system_extras.hpp"
#include "weightmap/checkpoint_info.hpp"

namespace weightmap {
namespace {

constexpr const char* attribute = "user.weightmap.version";

std::string digest_of(const std::string& text) {
  bytes::Sha256 sum;
  sum.add(std::as_bytes(std::span(text)));
  return bytes::to_hex(sum.digest());
}

// Without the change time, which a rename and the attribute itself change.
std::string text_of(const RangeSource& source, const RemoteVersion& version,
                    const Generation& file) {
  return "2 " + std::to_string(version.size) + ' ' +
         digest_of(source.identity() + '\n' + version.tag + '\n' + version.id) + ' ' +
         std::to_string(file.inode) + ' ' + std::to_string(file.mtime_ns);
}

}  // namespace

bool is_exact(const RemoteVersion& version) noexcept {
  return !version.id.empty() || (!version.tag.empty() && !version.tag.starts_with("W/"));
}

std::string source_text(const RangeSource& source) {
  return source.name() + ' ' + digest_of(source.identity());
}

void note_version(int descriptor, const RangeSource& source, const RemoteVersion& version) {
  const Result<os::File> file = os::File::from_descriptor(descriptor);
  if (!file || !is_exact(version)) return;
  os::set_attribute(descriptor, attribute, text_of(source, version, file->generation()));
}

bool has_version(const std::filesystem::path& path, const RangeSource& source,
                 const RemoteVersion& version) {
  const Result<Generation> file = generation_at(path);
  return file && is_exact(version) && file->size == version.size &&
         os::attribute_of(path, attribute) == text_of(source, version, *file);
}

}  // namespace weightmap

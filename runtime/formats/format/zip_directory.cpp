#include "runtime/formats/format/zip_directory.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/base/zip/deflate.hpp"
#include "runtime/formats/format/identify.hpp"
#include "runtime/formats/format/listed_names.hpp"
#include "runtime/formats/format/tar.hpp"

namespace weightmap::format {
namespace {

// torch reads a file that begins as a stream as one, whatever follows; and a file that begins as
// safetensors or GGUF is one, even if a tensor's bytes are an archive.
Result<void> check_front(const bytes::ByteSource& file, bytes::ReadCache& cache) {
  TRY_ASSIGN(const std::span<const std::byte> head,
             cache.bytes(0, std::min<std::uint64_t>(head_bytes, file.size())));
  const Kind kind = identify_head(head);
  if (kind == Kind::safetensors || kind == Kind::gguf)
    return failure(ErrorCode::corrupt,
                   std::string("the file begins as ") +
                       (kind == Kind::gguf ? "GGUF" : "safetensors") +
                       " and ends as a zip archive; readers differ in which of the two counts",
                   0);
  if (!begins_legacy_stream(head)) return {};
  return failure(ErrorCode::corrupt,
                 "the file begins as a legacy torch stream and ends as a zip archive; readers "
                 "differ in which of the two counts",
                 0);
}

bool is_packed_tar(std::span<const std::byte> front) {
  const auto content = zip::inflate_head(front, zip::Wrapping::gzip);
  return content && begins_tar(*content);
}

Error foreign(std::string sentence) {
  return {ErrorCode::not_a_checkpoint, std::move(sentence), Error::no_offset, {}};
}

// Names its first members, as far as they can be read.
Error describe_tar(const bytes::ByteSource& file) {
  TarReader reader(file);
  ListedNames names;
  while (names.count() < ListedNames::most) {
    const Result<std::optional<TarMember>> member = reader.next();
    if (!member || !*member) break;
    if ((*member)->name == "storages")
      return foreign(
          "is a tar archive of torch of before 0.1.10; load it with torch 0.4 to 1.x and save it "
          "again");
    names.add((*member)->name);
  }
  const bool may_have_more = names.count() == ListedNames::most;
  return foreign("is a tar archive" + (names.count() == 0 ? "" : " with " + names.text()) +
                 (may_have_more ? ", ..." : "") +
                 "; open what is a checkpoint in it as FILE//MEMBER");
}

}  // namespace

Result<zip::Directory> read_directory(const bytes::ByteSource& file, bytes::ReadCache& cache,
                                      const Limits& limits, zip::Refusals refusals) {
  Result<zip::Directory> directory = zip::Directory::read(cache, limits.directory_bytes, refusals);
  if (directory) {
    if (directory->first_header() != 0) TRY(check_front(file, cache));
    return directory;
  }
  if (directory.error().code != ErrorCode::not_a_checkpoint) return directory;
  TRY_ASSIGN(Error foreign, describe_foreign_file(file));
  return tl::unexpected<Error>(std::move(foreign));
}

Result<zip::Directory> take_directory(Input& input, const Limits& limits) {
  if (!input.directory) return read_directory(*input.file, *input.cache, limits);
  zip::Directory directory = std::move(*input.directory);
  input.directory.reset();
  return directory;
}

Result<Error> describe_foreign_file(const bytes::ByteSource& file) {
  std::vector<std::byte> front(std::min(bytes::first_read, file.size()));
  TRY(file.read(0, front));
  if (is_packed_tar(front))
    return foreign(
        "is a tar archive that is compressed with gzip, as an older .nemo of NeMo or a .mar of "
        "TorchServe may be; unpack it (tar xzf) and open what is in it");
  const std::span head = std::span(front).first(std::min(front.size(), head_bytes));
  if (begins_tar(head)) return describe_tar(file);
  if (std::optional<Error> stranger = describe_stranger(head, file.size()))
    return std::move(*stranger);
  std::array<std::byte, stranger_tail_bytes> tail;
  const auto last = static_cast<std::size_t>(std::min<std::uint64_t>(tail.size(), file.size()));
  TRY(file.read(file.size() - last, {tail.data(), last}));
  const std::string_view known =
      name_stranger({reinterpret_cast<const char*>(head.data()), head.size()},
                    {reinterpret_cast<const char*>(tail.data()), last}, file.size());
  if (!known.empty()) return foreign(std::string(known));
  return foreign(
      "is not a torch checkpoint: it is no zip archive (no end-of-central-directory record in "
      "its " +
      std::to_string(file.size()) + " bytes)");
}

}  // namespace weightmap::format

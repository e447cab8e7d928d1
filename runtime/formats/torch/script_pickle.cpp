#include "runtime/formats/torch/script_pickle.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/formats/torch/archive_records.hpp"

namespace weightmap::torch {
namespace {

constexpr std::string_view data_name = "data";
constexpr std::string_view constants_name = "constants";

Result<zip::RecordBytes> read_pickle(const zip::Directory& directory, std::string_view name,
                                     bytes::ReadCache& cache, std::uint64_t max_bytes) {
  TRY_ASSIGN(zip::RecordBytes content,
             zip::read_record(directory, *directory.find(name), cache, max_bytes));
  if (!content.bytes.empty() && content.bytes.back() == std::byte{'.'}) return content;
  return failure(ErrorCode::corrupt, std::string(name) + ": the pickle ends without a STOP opcode",
                 content.file_offset + content.bytes.size());
}

std::string_view as_text(const zip::RecordBytes& content) noexcept {
  return {reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()};
}

}  // namespace

// The names separate the pickles, so that the end of one is not the beginning of the next, and an
// error at that place belongs to the first.
Result<ScriptPickle> ScriptPickle::read(const zip::Directory& directory, bytes::ReadCache& cache,
                                        std::uint64_t max_bytes,
                                        std::pmr::memory_resource& memory) {
  constexpr std::size_t most_bytes = std::numeric_limits<std::uint32_t>::max();
  max_bytes = std::min(max_bytes, most_bytes - data_name.size() - constants_name.size());
  ScriptPickle both;
  TRY_ASSIGN(const zip::RecordBytes data, read_pickle(directory, pickle_record, cache, max_bytes));
  TRY_ASSIGN(const zip::RecordBytes constants,
             read_pickle(directory, constants_pickle, cache, max_bytes - data.bytes.size()));
  const std::array pieces = {as_text(data), data_name, constants_name, as_text(constants)};
  std::array<std::uint32_t, pieces.size() + 1> ends{};
  for (std::size_t i = 0; i < pieces.size(); ++i)
    ends[i + 1] = ends[i] + static_cast<std::uint32_t>(pieces[i].size());
  both.program_ = bytes::Buffer(ends.back(), memory);
  char* to = reinterpret_cast<char*>(both.program_.data());
  for (std::string_view piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
  both.parts_ = {{{ends[1], data_name.size(), 0, ends[1]},
                  {ends[2], constants_name.size(), ends[3], ends[4]}}};
  both.file_offsets_ = {data.file_offset, constants.file_offset};
  return both;
}

Error ScriptPickle::about_record(Error error) const {
  const bool in_constants =
      error.file_offset != Error::no_offset && error.file_offset >= parts_[1].begin;
  error.message =
      std::string(in_constants ? constants_pickle : pickle_record) + ": " + error.message;
  if (error.file_offset == Error::no_offset) return error;
  const std::size_t part = in_constants ? 1 : 0;
  error.file_offset += file_offsets_[part] - parts_[part].begin;
  return error;
}

}  // namespace weightmap::torch

#include "runtime/torch/script_pickle.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/zip/record_bytes.hpp"

namespace weightmap::torch {
namespace {

using namespace std::string_view_literals;

// PROTO 2, EMPTY_DICT, MARK and BINUNICODE "data"; BINUNICODE "constants"; SETITEMS and STOP.
constexpr std::string_view before_data = "\x80\x02}(X\x04\0\0\0data"sv;
constexpr std::string_view before_constants = "X\x09\0\0\0constants"sv;
constexpr std::string_view behind_constants = "u."sv;
constexpr std::size_t text_operand = 5;  // where the text of BINUNICODE begins

Result<zip::RecordBytes> read_pickle(const zip::Directory& directory, std::string_view name,
                                     bytes::Windows& windows, std::uint64_t max_bytes) {
  TRY_ASSIGN(zip::RecordBytes content,
             zip::read_record(directory, *directory.find(name), windows, max_bytes));
  if (!content.bytes.empty() && content.bytes.back() == std::byte{'.'}) return content;
  return failure(ErrorCode::corrupt, std::string(name) + ": the pickle ends without a STOP opcode",
                 content.file_offset + content.bytes.size());
}

}  // namespace

Result<ScriptPickle> ScriptPickle::read(const zip::Directory& directory, bytes::Windows& windows,
                                        std::uint64_t max_bytes,
                                        std::pmr::memory_resource& memory) {
  ScriptPickle joined;
  TRY_ASSIGN(const zip::RecordBytes data,
             read_pickle(directory, pickle_record, windows, max_bytes));
  TRY_ASSIGN(const zip::RecordBytes constants,
             read_pickle(directory, constants_pickle, windows, max_bytes - data.bytes.size()));
  constexpr std::size_t without_stop = 1;
  const auto body_of = [](const zip::RecordBytes& content) {
    return std::string_view(reinterpret_cast<const char*>(content.bytes.data()),
                            content.bytes.size() - without_stop);
  };
  const std::array pieces = {before_data, body_of(data), before_constants, body_of(constants),
                             behind_constants};
  std::size_t size = 0;
  for (std::string_view piece : pieces) size += piece.size();
  joined.program_ = bytes::Buffer(size, memory);
  char* to = reinterpret_cast<char*>(joined.program_.data());
  for (std::string_view piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
  joined.data_ = {pickle_record, before_data.size(), data.file_offset};
  joined.constants_ = {constants_pickle,
                       before_data.size() + pieces[1].size() + before_constants.size(),
                       constants.file_offset};
  return joined;
}

Result<void> ScriptPickle::check(const value::Tree& tree) const {
  // Only an opcode that begins where ours does makes a text of just these bytes.
  const Value root(&tree, tree.root());
  if (root.kind() == Value::Kind::dict && root.item_count() == 2) {
    const Value second = (*++root.items().begin()).first;
    if (second.kind() == Value::Kind::string &&
        second.cell().payload == constants_.position - before_constants.size() + text_operand)
      return {};
  }
  return failure(ErrorCode::corrupt, "data.pkl: the pickle does not end where its record does",
                 data_.file_offset);
}

Error ScriptPickle::about_record(Error error) const {
  const bool in_constants = error.file_offset != Error::no_offset &&
                            error.file_offset + before_constants.size() >= constants_.position;
  const Part& part = in_constants ? constants_ : data_;
  error.message = std::string(part.record) + ": " + error.message;
  if (error.file_offset == Error::no_offset) return error;
  const std::uint64_t within = error.file_offset - std::min(error.file_offset, part.position);
  error.file_offset = part.file_offset + within;
  return error;
}

}  // namespace weightmap::torch

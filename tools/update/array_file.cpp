#include "tools/update/array_file.hpp"

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tools/cat/npy.hpp"
#include "tools/support/text.hpp"
#include "tools/update/npy_header.hpp"

namespace weightmap::cli {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t max_header_bytes = std::size_t{1} << 20;

tl::unexpected<Error> refuse_array(const std::filesystem::path& path, std::string why) {
  return tl::unexpected<Error>(Error{.code = ErrorCode::invalid_argument,
                                     .message = std::move(why),
                                     .file = printable(path.native())});
}

tl::unexpected<Error> unreadable(const std::filesystem::path& path) {
  return tl::unexpected<Error>(
      Error{.code = ErrorCode::io, .message = "cannot be read", .file = printable(path.native())});
}

// A file that is read from front to back.
class Input {
 public:
  static Result<std::shared_ptr<Input>> open(const std::filesystem::path& path) {
    auto input = std::make_shared<Input>();
    std::error_code error;
    input->path = path;
    input->size = std::filesystem::file_size(path, error);
    input->stream.open(path, std::ios::binary);
    if (!error && input->stream) return input;
    return tl::unexpected<Error>(Error{
        .code = ErrorCode::io,
        .message = "cannot open: " + (error ? error.message() : std::string("permission denied")),
        .file = printable(path.native())});
  }
  bool read(std::span<std::byte> out) {
    stream.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    return static_cast<std::size_t>(stream.gcount()) == out.size();
  }

  std::filesystem::path path;
  std::ifstream stream;
  std::uint64_t size = 0;
};

// The rest of the file.
RecordContent rest_of(std::shared_ptr<Input> input, std::uint64_t bytes) {
  return RecordContent::produced(
      bytes, [input = std::move(input), bytes](const RecordContent::Take& take) -> Result<void> {
        std::vector<std::byte> buffer(std::min<std::uint64_t>(bytes, piece_bytes));
        for (std::uint64_t left = bytes; left > 0;) {
          const auto piece = std::span(buffer).first(std::min<std::uint64_t>(left, buffer.size()));
          if (!input->read(piece)) return unreadable(input->path);
          if (Result<void> taken = take(piece); !taken) return taken;
          left -= piece.size();
        }
        return {};
      });
}

// The text of the header; the stream stands behind it then.
Result<std::string> header_text(Input& input) {
  std::array<std::byte, 12> prefix{};
  const auto at = [&](std::size_t i) { return std::to_integer<std::size_t>(prefix[i]); };
  constexpr std::string_view magic = "\x93NUMPY";
  if (!input.read(std::span(prefix).first(10)) ||
      std::string_view(reinterpret_cast<const char*>(prefix.data()), magic.size()) != magic)
    return refuse_array(input.path, "is not a .npy file; --raw takes elements as they are");
  if (at(6) < 1 || at(6) > 3 || at(7) != 0)
    return refuse_array(input.path, "is a .npy file of version " + std::to_string(at(6)) + "." +
                                        std::to_string(at(7)) + ", not 1.0, 2.0 or 3.0");
  std::size_t length = at(8) | at(9) << 8;
  if (at(6) > 1) {
    if (!input.read(std::span(prefix).last(2)))
      return refuse_array(input.path, "ends in its header");
    length |= at(10) << 16 | at(11) << 24;
  }
  if (length > max_header_bytes)
    return refuse_array(input.path, "has a header of " + std::to_string(length) + " bytes");
  std::string text(length, '\0');
  if (!input.read(std::as_writable_bytes(std::span(text))))
    return refuse_array(input.path, "ends in its header");
  return text;
}

// What is wrong with an array for this tensor; empty: nothing.
std::string difference(const NpyHeader& header, const TensorView& view) {
  const std::string wanted = npy_description(view.dtype());
  const bool is_bits = wanted.empty() && header.descr.size() == 3 &&
                       std::string_view("iuV").find(header.descr[1]) != std::string_view::npos &&
                       header.descr[2] - '0' == static_cast<int>(element_size(view.dtype())) &&
                       header.descr[0] != '>';
  if (header.descr != wanted && !is_bits)
    return "has elements of type " + printable(header.descr) + ", the tensor is " +
           std::string(to_string(view.dtype())) +
           (wanted.empty() ? ", of which the bits may come as integers of that size"
                           : " (" + wanted + ")");
  if (!std::ranges::equal(header.shape, view.shape()))
    return "has shape " + dims(header.shape) + ", the tensor has " + dims(view.shape());
  if (header.fortran_order && view.rank() > 1)
    return "has its elements column by column (fortran_order); save "
           "numpy.ascontiguousarray() of it";
  return {};
}

}  // namespace

Result<RecordContent> npy_elements(const std::filesystem::path& path, const TensorView& view) {
  Result<std::shared_ptr<Input>> input = Input::open(path);
  if (!input) return tl::unexpected<Error>(input.error());
  const Result<std::string> text = header_text(**input);
  if (!text) return tl::unexpected<Error>(text.error());
  const Result<NpyHeader> header = parse_npy_header(*text);
  if (!header) return refuse_array(path, header.error().message);
  if (const std::string why = difference(*header, view); !why.empty())
    return refuse_array(path, why);
  const auto before = static_cast<std::uint64_t>((*input)->stream.tellg());
  if ((*input)->size < before || (*input)->size - before != view.nbytes())
    return refuse_array(path, "has " + std::to_string((*input)->size - before) +
                                  " bytes of elements, expected " + std::to_string(view.nbytes()));
  return rest_of(std::move(*input), view.nbytes());
}

Result<RecordContent> raw_elements(const std::filesystem::path& path) {
  Result<std::shared_ptr<Input>> input = Input::open(path);
  if (!input) return tl::unexpected<Error>(input.error());
  const std::uint64_t bytes = (*input)->size;
  return rest_of(std::move(*input), bytes);
}

}  // namespace weightmap::cli

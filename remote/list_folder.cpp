#include "remote/list_folder.hpp"

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "remote/place.hpp"
#include "remote/s3_page.hpp"
#include "remote/whole_get.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::remote {
namespace {

constexpr std::size_t longest_listing = std::size_t{8} << 20;  // in bytes, of one answer
constexpr int most_pages = 20;

// Takes a text of one type only, so that of a web page no more than its header comes.
class ListingBody final : public Body {
 public:
  explicit ListingBody(std::string_view type) : type_(type) {}
  std::string text;

 private:
  Result<void> begins(const Answer& answer) override {
    text.clear();
    if (answer.content_type.find(type_) != std::string::npos) return {};
    return failure(ErrorCode::unsupported, "the answer is no listing");
  }
  Result<void> take(std::span<const std::byte> bytes) override {
    if (text.size() + bytes.size() > longest_listing)
      return failure(ErrorCode::limit_exceeded, "the listing is longer than 8 MiB");
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }

  const std::string_view type_;
};

Result<std::optional<std::string>> get_listing(Place place, std::string_view type,
                                               const RemoteOptions& options, RangeCounts& counts) {
  ListingBody body(type);
  const Result<Answer> answer = get_whole(place, options, body, counts);
  if (answer && answer->status == 200) return std::move(body.text);
  if (answer || answer.error().code == ErrorCode::unsupported ||
      answer.error().code == ErrorCode::limit_exceeded)
    return std::nullopt;
  return tl::unexpected<Error>(answer.error());
}

// Also slashes, which the signature of a query needs.
std::string encoded_value(std::string_view text) {
  std::string out = percent_encoded(text);
  for (std::size_t at = 0; (at = out.find('/', at)) != std::string::npos;)
    out.replace(at, 1, "%2F");
  return out;
}

// In the order of the alphabet, in which they are signed.
std::string page_query(std::string_view prefix, const std::string& continuation) {
  return (continuation.empty() ? "" : "continuation-token=" + encoded_value(continuation) + "&") +
         "delimiter=%2F&encoding-type=url&list-type=2&prefix=" + encoded_value(prefix);
}

}  // namespace

Result<std::optional<Listing>> list_s3_folder(const S3Object& object, const RemoteOptions& options,
                                              RangeCounts& counts) {
  TRY_ASSIGN(const S3Access access, S3Access::from_environment());
  TRY_ASSIGN(Url url, access.url_of({object.bucket, ""}));
  const std::string prefix = object.key.substr(0, object.key.rfind('/') + 1);
  Listing files;
  std::string next;
  for (int i = 0; i < most_pages; ++i) {
    url.query = page_query(prefix, next);
    TRY_ASSIGN(const std::optional<std::string> text,
               get_listing(Place("", url, options.headers, {}, access), "xml", options, counts));
    std::optional<S3Page> page = text ? read_s3_page(*text, prefix) : std::nullopt;
    if (!page) return std::nullopt;
    files.insert(files.end(), std::make_move_iterator(page->files.begin()),
                 std::make_move_iterator(page->files.end()));
    next = std::move(page->next);
    if (next.empty()) return files;
  }
  return std::nullopt;
}

Result<std::optional<Listing>> list_web_folder(Url file, const RemoteOptions& options,
                                               RangeCounts& counts) {
  if (file.is_presigned()) return std::nullopt;
  file.path.resize(file.path.rfind('/') + 1);
  TRY_ASSIGN(
      const std::optional<std::string> text,
      get_listing(Place("", file, options.headers, {}, {}), "application/json", options, counts));
  return text ? read_autoindex(*text) : std::nullopt;
}

}  // namespace weightmap::remote

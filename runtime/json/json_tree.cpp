#include "runtime/json/json_tree.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"

namespace weightmap::json {
namespace {

using Json = nlohmann::json;
using value::Builder;
using value::Cell;

// Told of each part of the document by the parser, which stops where it answers false.
class TreeMaker {
 public:
  explicit TreeMaker(Builder& build) : build_(build) {}

  bool null() { return add(build_.none()); }
  bool boolean(bool value) { return add(build_.boolean(value)); }
  bool number_integer(Json::number_integer_t value) { return add(build_.integer(value)); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail("a number is larger than 2^63 - 1");
    return add(build_.integer(static_cast<std::int64_t>(value)));
  }
  bool number_float(Json::number_float_t value, const std::string&) {
    return add(build_.real(value));
  }
  bool string(std::string& text) { return add(build_.string(text)); }
  bool binary(Json::binary_t&) { return fail("binary values are not JSON"); }
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool key(std::string& text) {
    Container& object = open_.back();
    if (!object.keys.insert(text).second)
      return fail("an object has the key " + bytes::quote(text) + " twice");
    object.cells.push_back(build_.string(text));
    return check();
  }
  bool end_object() { return close(true); }
  bool end_array() { return close(false); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    error_ = {ErrorCode::corrupt, "is not JSON", position, {}};
    return false;
  }

  Result<Cell> made() && {
    if (!error_.message.empty()) return tl::unexpected<Error>(std::move(error_));
    return root_;
  }

 private:
  struct Container {
    std::vector<Cell> cells;
    std::set<std::string, std::less<>> keys;  // of an object
  };

  bool open(bool) {
    constexpr std::size_t deepest = 64;
    if (open_.size() == deepest) return fail("nests deeper than 64 containers");
    open_.emplace_back();
    return true;
  }
  bool close(bool is_object) {
    const std::vector<Cell> cells = std::move(open_.back().cells);
    open_.pop_back();
    return add(is_object ? build_.dict(cells) : build_.list(cells));
  }
  bool add(const Cell& cell) {
    (open_.empty() ? root_ : open_.back().cells.emplace_back()) = cell;
    return check();
  }
  bool check() {
    Result<void> fits = build_.check();
    if (!fits) error_ = std::move(fits.error());
    return fits.has_value();
  }
  bool fail(std::string why) {
    error_ = {ErrorCode::corrupt, std::move(why), Error::no_offset, {}};
    return false;
  }

  Builder& build_;
  std::vector<Container> open_;
  Cell root_;
  Error error_;
};

}  // namespace

Result<Cell> add_document(Builder& build, std::string_view text) {
  TreeMaker maker(build);
  Json::sax_parse(text.begin(), text.end(), &maker);
  return std::move(maker).made();
}

}  // namespace weightmap::json

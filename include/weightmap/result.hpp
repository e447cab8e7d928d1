// What can fail returns a Result: a value or an Error.
//
//   const weightmap::Result<weightmap::Checkpoint> opened = weightmap::Checkpoint::open(path);
//   if (!opened) return tl::unexpected(opened.error());  // or: std::cerr << opened.error()
//
// A bad file is an ordinary outcome, so every function that can meet one returns a Result and does
// not throw for it. The only exception that passes through is std::bad_alloc.
//
// has_value(), value(), error(), value_or(), and_then() and transform() are those of C++23's
// std::expected. value() throws tl::bad_expected_access<Error>, whose what() is the error's
// sentence, for those who prefer exceptions. (A Result<void> has no value() in tl 1.0; without
// exceptions, value() of an error is undefined, so check first.) The compiler warns about a
// discarded Result.
//
// It uses tl::expected under C++23, too: with std::expected the library's interface would depend on
// the standard, and programs of the other one would not link.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "weightmap/version.hpp"

namespace weightmap {

// Codes are grouped by what the caller can do next, not by cause.
enum class ErrorCode : std::uint8_t {
  io,  // the operating system refused: missing, unreadable, disk error; retry or fix the cause
  not_a_checkpoint,  // the file is something else (the message names it where it can)
  corrupt,           // the file contradicts itself or ends early; fetch it again
  unsupported,       // a valid file that needs something this version does not support
  unsafe_pickle,     // the pickle needs something that only running code could provide
  limit_exceeded,    // a bound in OpenOptions::limits was reached; raise it if the file is trusted
  invalid_argument,  // the call itself is wrong: wrong dtype, index out of range, ambiguous name
  not_found,         // nothing in the checkpoint has this name or path
  cancelled,         // the caller's Progress returned false
};

// Returns "io", "not_a_checkpoint", ...: the stable spelling of JSON output.
WEIGHTMAP_API std::string_view to_string(ErrorCode code) noexcept;

// A code for the program, a sentence for the user, a place in the file.
struct Error {
  static constexpr std::uint64_t no_offset = ~std::uint64_t{0};

  ErrorCode code = ErrorCode::io;
  // One sentence that names the record or tensor, the field, the expected and the found value. Text
  // from the file is escaped and shortened, so it is safe on a terminal or in a log.
  std::string message = {};
  // The first wrong byte of the file, or no_offset if no single byte is wrong.
  std::uint64_t file_offset = no_offset;
  // The path as the caller passed it, escaped; empty if no file was involved.
  std::string file = {};
  // The errno of the failed system call; 0 if there was none.
  int os_error = 0;
};

// Returns "model.pt: message (at byte 4096)": the line that the command line tool prints.
WEIGHTMAP_API std::string to_string(const Error& error);

// Writes the same line.
WEIGHTMAP_API std::ostream& operator<<(std::ostream& out, const Error& error);

// Told of the progress of a long call, and may cancel it.
//
// Called repeatedly with the bytes done and the bytes in all; returns whether to continue. After
// false the call stops at once, undoes what it began (a copy, an open) and fails with
// ErrorCode::cancelled. A call that reads or copies bytes calls it at least once per 16 MiB. Each
// function documents the thread from which it calls it, never two at once. It must not throw.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t all)>;

}  // namespace weightmap

// The primary template's what() says "Bad expected access" only.
template <>
class tl::bad_expected_access<weightmap::Error> : public std::exception {
 public:
  explicit bad_expected_access(weightmap::Error error)
      : error_(std::move(error)), what_(weightmap::to_string(error_)) {}

  const char* what() const noexcept override { return what_.c_str(); }

  const weightmap::Error& error() const& { return error_; }
  weightmap::Error& error() & { return error_; }
  const weightmap::Error&& error() const&& { return std::move(error_); }
  weightmap::Error&& error() && { return std::move(error_); }

 private:
  weightmap::Error error_;
  std::string what_;
};

namespace weightmap {

// True if a T returns references into itself. Then `make()->part()` would dangle: the Result ends
// with the statement. Each such class specialises this in its header.
template <class T>
inline constexpr bool lends_from_itself = false;

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  Result(const Base& base) : Base(base) {}
  Result(Base&& base) noexcept(std::is_nothrow_move_constructible_v<Base>)
      : Base(std::move(base)) {}

  constexpr const T* operator->() const& noexcept { return Base::operator->(); }
  constexpr T* operator->() & noexcept { return Base::operator->(); }
  constexpr T* operator->() && noexcept requires(!lends_from_itself<T>) {
    return Base::operator->();
  }
  // Keep the Result in a variable, and check whether it has a value.
  void operator->() const&& requires(lends_from_itself<T>) = delete;

  // Returns next(value), which is a Result; otherwise the error.
  template <class Next>
  auto and_then(Next&& next) const& -> std::invoke_result_t<Next, const T&> {
    if (!*this) return tl::unexpected<Error>(this->error());
    return std::invoke(std::forward<Next>(next), **this);
  }
  template <class Next>
  auto and_then(Next&& next) && -> std::invoke_result_t<Next, T&&> {
    if (!*this) return tl::unexpected<Error>(std::move(*this).error());
    return std::invoke(std::forward<Next>(next), *std::move(*this));
  }
  // Returns a Result of change(value); otherwise the error.
  template <class Change>
  auto transform(Change&& change) const& -> Result<std::invoke_result_t<Change, const T&>> {
    if (!*this) return tl::unexpected<Error>(this->error());
    if constexpr (std::is_void_v<std::invoke_result_t<Change, const T&>>) {
      std::invoke(std::forward<Change>(change), **this);
      return {};
    } else {
      return std::invoke(std::forward<Change>(change), **this);
    }
  }
};

template <>
class [[nodiscard]] Result<void> : public tl::expected<void, Error> {
 public:
  using Base = tl::expected<void, Error>;
  using Base::Base;
  Result(const Base& base) : Base(base) {}
  Result(Base&& base) noexcept(std::is_nothrow_move_constructible_v<Base>)
      : Base(std::move(base)) {}
};

// Makes the return value of a failure: return failure(ErrorCode::corrupt, "...", offset);
// It is cold, so that compilers place failure branches apart from the success path, and a small
// open touches fewer pages of code.
[[gnu::cold]] WEIGHTMAP_API tl::unexpected<Error> failure(
    ErrorCode code, std::string message, std::uint64_t file_offset = Error::no_offset);

}  // namespace weightmap

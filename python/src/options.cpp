#include "python/src/options.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "python/src/errors.hpp"
#include "python/src/text.hpp"
#include "runtime/base/option_table.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// The words that are bools in Python.
constexpr std::string_view no = "0";
constexpr std::string_view yes = "1";

nb::object value_of(const OptionRow& option, std::size_t word) {
  const std::string_view text = option.words[word];
  if (text == no || text == yes) return nb::bool_(text == yes);
  return to_str(text);
}

std::string expected(const OptionRow& option) {
  if (option.is_switch()) return "True or False";
  std::string known = "one of ";
  for (std::size_t word = 0; word < option.words.size(); ++word) {
    const nb::object value = value_of(option, word);
    known += word == 0 ? "" : ", ";
    known += nb::isinstance<nb::bool_>(value) ? nb::repr(value).c_str()
                                              : '"' + std::string(option.words[word]) + '"';
  }
  return known;
}

std::size_t read_word(const OptionRow& option, nb::handle value) {
  std::string text;
  if (nb::isinstance<nb::bool_>(value))
    text = nb::cast<bool>(value) ? yes : no;
  else if (nb::isinstance<nb::str>(value))
    text = to_utf8(value);
  const bool is_bool = text == no || text == yes;
  const std::optional<std::size_t> word = option.find(text);
  if (word && is_bool == nb::isinstance<nb::bool_>(value)) return *word;
  raise(ErrorCode::invalid_argument, std::string(option.name) + " is " + nb::repr(value).c_str() +
                                         ", expected " + expected(option) +
                                         std::string(option.hint_about(text)));
}

// The options whose values are no words of a table.
constexpr std::string_view safe_globals = "safe_globals";
constexpr std::string_view variant = "variant";
constexpr std::string_view dtypes = "dtypes";
constexpr std::string_view access_ = "access";

void read_safe_globals(OpenOptions& options, nb::handle value) {
  if (nb::isinstance<nb::str>(value))
    raise(ErrorCode::invalid_argument,
          "safe_globals is a text, expected a list of names such as \"argparse.Namespace\"");
  for (nb::handle name : value) {
    if (!nb::isinstance<nb::str>(name))
      raise(ErrorCode::invalid_argument, std::string("safe_globals has ") + nb::repr(name).c_str() +
                                             ", expected names such as \"argparse.Namespace\"");
    options.safe_globals.insert(to_utf8(name));
  }
}

void read_variant(OpenOptions& options, nb::handle value) {
  if (!nb::isinstance<nb::str>(value))
    raise(ErrorCode::invalid_argument, std::string("variant is ") + nb::repr(value).c_str() +
                                           ", expected a text such as \"fp16\"");
  options.variant = to_utf8(value);
}

void read_dtypes(OpenOptions& options, nb::handle value) {
  nb::dict told;
  if (!nb::try_cast(value, told))
    raise(ErrorCode::invalid_argument, std::string("dtypes is ") + nb::repr(value).c_str() +
                                           ", expected a dict such as {\"a\": \"bfloat16\"}");
  for (const auto& [name, dtype] : told) {
    const std::optional<DType> found =
        nb::isinstance<nb::str>(dtype) ? dtype_from_string(to_utf8(dtype)) : std::nullopt;
    if (!found || !nb::isinstance<nb::str>(name))
      raise(ErrorCode::invalid_argument, std::string("dtypes has ") + nb::repr(name).c_str() +
                                             ": " + nb::repr(dtype).c_str() +
                                             ", expected a name and a dtype such as \"bfloat16\"");
    options.dtypes.insert_or_assign(to_utf8(name), *found);
  }
}

void read_access(OpenOptions& options, nb::handle value) {
  nb::dict told;
  if (!nb::try_cast(value, told))
    raise(ErrorCode::invalid_argument, std::string("access is ") + nb::repr(value).c_str() +
                                           ", expected a dict such as {\"*ngram*\": \"random\"}");
  for (const auto& [pattern, how] : told) {
    const std::string word = nb::isinstance<nb::str>(how) ? to_utf8(how) : "";
    const bool is_random = word == to_string(Access::random);
    if (!nb::isinstance<nb::str>(pattern) || (!is_random && word != to_string(Access::normal)))
      raise(ErrorCode::invalid_argument,
            std::string("access has ") + nb::repr(pattern).c_str() + ": " + nb::repr(how).c_str() +
                ", expected a pattern of names and \"normal\" or \"random\"");
    options.access.emplace_back(to_utf8(pattern), is_random ? Access::random : Access::normal);
  }
}

void read_option(OpenOptions& options, const char* name, nb::handle value) {
  if (name == variant) return value.is_none() ? void() : read_variant(options, value);
  if (name == dtypes) return value.is_none() ? void() : read_dtypes(options, value);
  if (name == access_) return value.is_none() ? void() : read_access(options, value);
  if (name == safe_globals) return value.is_none() ? void() : read_safe_globals(options, value);
  const OptionRow* option = find_option(name);
  if (option == nullptr) {
    PyErr_Format(PyExc_TypeError, "there is no option '%s'", name);
    throw nb::python_error();
  }
  if (!value.is_none()) option->set(options, read_word(*option, value));
}

nb::dict option_values() {
  nb::dict values;
  for (const OptionRow& option : option_table()) {
    nb::list of_option;
    for (std::size_t word = 0; word < option.words.size(); ++word)
      of_option.append(value_of(option, word));
    values[to_str(option.name)] = nb::tuple(of_option);
  }
  return values;
}

}  // namespace

OpenOptions read_options(const nb::dict& options, bool like_torch) {
  OpenOptions read;
  for (const auto& [name, value] : options) read_option(read, nb::cast<const char*>(name), value);
  if (!like_torch) return read;
  read = value_or_raise(with_environment(read));
  if (read.copy_on_write.value_or(CopyOnWrite::on) != CopyOnWrite::on) return read;
  read.sharing = read.sharing.value_or(Sharing::private_);
  if (read.sharing == Sharing::private_) {
    // Copy on write; most of it is only read, so nothing is set aside for it.
    read.writable = read.writable.value_or(true);
    read.no_reserve = read.no_reserve.value_or(true);
  }
  return read;
}

std::optional<CopyOnWrite> read_copy_on_write(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  OpenOptions read;
  read_option(read, "copy_on_write", value);
  return read.copy_on_write;
}

nb::dict to_dict(const OpenOptions& options) {
  nb::dict set;
  for (const OptionRow& option : option_table())
    if (const std::optional<std::size_t> word = option.get(options))
      set[to_str(option.name)] = value_of(option, *word);
  if (!options.safe_globals.empty()) set[to_str(safe_globals)] = to_strs(options.safe_globals);
  if (!options.variant.empty()) set[to_str(variant)] = to_str(options.variant);
  if (!options.dtypes.empty()) {
    nb::dict told;
    for (const auto& [name, dtype] : options.dtypes) told[to_str(name)] = to_str(to_string(dtype));
    set[to_str(dtypes)] = told;
  }
  if (!options.access.empty()) {
    nb::dict told;
    for (const auto& [pattern, how] : options.access)
      told[to_str(pattern)] = to_str(to_string(how));
    set[to_str(access_)] = told;
  }
  return set;
}

void bind_options(nb::module_& module) {
  module.attr("small_storage") = small_storage;
  module.def("option_values", option_values,
             nb::sig("def option_values() -> dict[str, tuple[str | bool, ...]]"),
             "The options of open() and what each takes.");
}

}  // namespace weightmap::python

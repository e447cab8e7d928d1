// The keyword arguments of weightmap.open() as OpenOptions.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "weightmap/options.hpp"

namespace weightmap::python {

// `options` holds None or a word ("shared", "crc", "big") or a bool for each option that is named,
// and may hold a list of texts as "safe_globals".
// Raises TypeError for an unknown name and invalid_argument for an unknown word. `like_torch`: with
// the defaults of torch.load(mmap=True), which are private, and writable then; unless copy_on_write
// is False or "small".
OpenOptions read_options(const nanobind::dict& options, bool like_torch);

// Reads a value of the option copy_on_write; nullopt for None.
std::optional<CopyOnWrite> read_copy_on_write(nanobind::handle value);

// The options that are set: read_options() of this gives the same.
nanobind::dict to_dict(const OpenOptions& options);

void bind_options(nanobind::module_& module);

}  // namespace weightmap::python

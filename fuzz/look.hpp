// Reads everything, so that a sanitizer detects invalid accesses, and checks what holds for all
// formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "runtime/base/catalog/catalog.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap::fuzz {

void look_at(std::span<const std::byte> bytes);
void look_at_text(std::string_view text);
// Visits each node once, and calls `visit` for it if there is one.
void look_at(const Value& root, const std::function<void(const Value&)>& visit = {});

// Requires a message of one printable line, about a byte of the file if it names one.
void check_refusal(const Error& error, std::uint64_t file_bytes);
// Requires that each tensor lies within the file and is found by its name; reads what belongs to
// it.
void check_catalog(const catalog::Catalog& catalog, std::uint64_t file_bytes);

}  // namespace weightmap::fuzz

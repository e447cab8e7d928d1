// Pages that the tool writes: self-contained, without scripts.
#pragma once

#include <string>

namespace weightmap::cli {

// Returns `text` with &, <, >, " and ' as character references.
std::string escaped(const std::string& text);

// Makes untrusted text safe: no control characters, no marks that change the direction, no markup.
std::string html(const std::string& text);

// Returns <NAME>CONTENT</NAME>; the name may have attributes behind it.
std::string element(const std::string& name, const std::string& content);

// Returns a page with the tool's style sheet, which may load nothing. `title` is escaped here,
// `body` is not.
std::string html_page(const std::string& title, const std::string& body);

}  // namespace weightmap::cli

#include "tools/doctor/torch_way.hpp"

#include "tools/doctor/python_answer.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::doctor {

// Its answer is the state, what is found and the advice, a line for each.
std::optional<Finding> torch_way(const std::string& python) {
  std::optional<std::string> answer =
      python_answer(python, "from weightmap._torch import way; way.tell()");
  if (!answer) return std::nullopt;
  const Finding::State state = next_line(*answer) == "good" ? Finding::good : Finding::slow;
  const std::string found = printable(next_line(*answer));
  return Finding{"torch", state, found, next_line(*answer)};
}

}  // namespace weightmap::cli::doctor

#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tools/command.hpp"
#include "tools/support/text.hpp"

// Shell scripts that complete commands, options and their words, generated from the command line's
// own tables, so that they are never out of date.
namespace weightmap::cli {
namespace {

struct Option {
  std::vector<std::string> names;  // "--long", "-l"
  std::vector<std::string> words;  // accepted words, if they are few
  std::string help;                // one line
  bool takes_value = false;
};

struct Command {
  std::string name;
  std::string help;
  std::vector<Option> options;
};

std::string first_line(std::string text) {
  if (const std::size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  return text;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

Option option_of(const CLI::Option& option) {
  Option described;
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  described.help = first_line(option.get_description());
  described.takes_value = option.get_type_size() != 0;
  if (const std::string type = option.get_type_name(); type.find('|') != std::string::npos)
    described.words = split(type, '|');
  return described;
}

std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;  // internal commands
    Command described{command->get_name(), first_line(command->get_description()), {}};
    for (const CLI::Option* option : command->get_options())
      if (option->nonpositional()) described.options.push_back(option_of(*option));
    commands.push_back(std::move(described));
  }
  return commands;
}

// Returns `text` with a backslash before each of `special`.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Quotes for a shell without special characters between single quotes.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string bash_case(const Command& command) {
  std::vector<std::string> names;
  std::string words;
  for (const Option& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (!option.words.empty())
      words += "        " + joined_words(option.names, "|") +
               ") words=" + in_quotes(joined_words(option.words, " ")) + " ;;\n";
  }
  return "    " + command.name + ")\n      options=" + in_quotes(joined_words(names, " ")) + "\n" +
         (words.empty() ? "" : "      case $previous in\n" + words + "      esac\n") + "      ;;\n";
}

std::string bash(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  std::string cases;
  for (const Command& command : commands) {
    names.push_back(command.name);
    cases += bash_case(command);
  }
  return "# Completion of weightmap for bash: weightmap completion bash\n"
         "_weightmap() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local options= words= line\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    words=" +
         in_quotes(joined_words(names, " ") + " --help --version") +
         "\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  COMPREPLY=()\n"
         "  if [[ -n $words ]]; then\n"
         "    while read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -W \"$words\" -- "
         "\"$word\")\n"
         "  elif [[ $word == -* ]]; then\n"
         "    while read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -W \"$options\" -- "
         "\"$word\")\n"
         "  else\n"
         "    while read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -f -- \"$word\")\n"
         "    compopt -o filenames 2>/dev/null\n"
         "  fi\n"
         "}\n"
         "complete -F _weightmap weightmap\n";
}

std::string zsh_arguments(const Command& command) {
  std::string out;
  for (const Option& option : command.options) {
    const std::string value = !option.takes_value ? ""
                              : option.words.empty()
                                  ? ":value:_files"
                                  : ":value:(" + joined_words(option.words, " ") + ")";
    for (const std::string& name : option.names)
      out += " \\\n        " + in_quotes(name + "[" + escaped(option.help, "[]:\\") + "]" + value);
  }
  return out;
}

std::string zsh(const std::vector<Command>& commands) {
  std::string list;
  std::string cases;
  for (const Command& command : commands) {
    list += "    " + in_quotes(command.name + ":" + escaped(command.help, ":\\")) + "\n";
    cases += "    " + command.name + ")\n      _arguments" + zsh_arguments(command) +
             " \\\n        '*:file:_files' ;;\n";
  }
  return "#compdef weightmap\n"
         "# Completion of weightmap for zsh: weightmap completion zsh\n"
         "_weightmap() {\n"
         "  local -a commands\n"
         "  commands=(\n" +
         list +
         "  )\n"
         "  if ((CURRENT == 2)); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  shift words\n"
         "  ((CURRENT--))\n"
         "  case $words[1] in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _weightmap ]]; then\n"
         "  _weightmap \"$@\"\n"
         "else\n"
         "  compdef _weightmap weightmap\n"
         "fi\n";
}

std::string fish(const std::vector<Command>& commands) {
  const auto quote = [](std::string_view text) { return "'" + escaped(text, "'\\") + "'"; };
  std::string out = "# Completion of weightmap for fish: weightmap completion fish\n";
  for (const Command& command : commands)
    out += "complete -c weightmap -n __fish_use_subcommand -f -a " + command.name + " -d " +
           quote(command.help) + "\n";
  for (const Command& command : commands)
    for (const Option& option : command.options) {
      out += "complete -c weightmap -n '__fish_seen_subcommand_from " + command.name + "'";
      for (const std::string& name : option.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value)
        out += option.words.empty() ? " -r" : " -x -a " + quote(joined_words(option.words, " "));
      out += " -d " + quote(option.help) + "\n";
    }
  return out;
}

}  // namespace

void add_completion(CLI::App& app, Run& run) {
  auto shell = std::make_shared<std::string>();
  CLI::App& command =
      *app.add_subcommand("completion", "Print a script that completes commands in a shell");
  command.add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command.footer(
      "Installed packages bring these scripts; by hand:\n"
      "  source <(weightmap completion bash)\n"
      "  source <(weightmap completion zsh)\n"
      "  weightmap completion fish | source");
  command.callback([&app, shell, &run] {
    run = [&app, shell](Output& out) -> Result<int> {
      const std::vector<Command> commands = commands_of(app);
      out.write(*shell == "bash"  ? bash(commands)
                : *shell == "zsh" ? zsh(commands)
                                  : fish(commands));
      return exit_good;
    };
  });
}

}  // namespace weightmap::cli

# Writes the tool's manual page from its --help.
#
#   cmake -D TOOL=<weightmap> -D PAGE=<weightmap.1> -P ManPage.cmake
cmake_minimum_required(VERSION 3.25)

function(help_of out)
  execute_process(COMMAND ${TOOL} ${ARGN} --help OUTPUT_VARIABLE text RESULT_VARIABLE status
    COMMAND_ERROR_IS_FATAL ANY)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# Escapes `text` for roff.
function(verbatim out text)
  string(REPLACE "\\" "\\e" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REGEX REPLACE "(^|\n)([.'])" "\\1\\\\&\\2" text "${text}")
  set(${out} ".nf\n${text}.fi\n" PARENT_SCOPE)
endfunction()

execute_process(COMMAND ${TOOL} --version OUTPUT_VARIABLE version
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
help_of(overview)
verbatim(lines "${overview}")
string(CONCAT page ".TH WEIGHTMAP 1 \"\" \"${version}\" \"User Commands\"\n.SH NAME\n"
  "weightmap \\- look into PyTorch checkpoints without loading or running them\n"
  ".SH DESCRIPTION\n${lines}")
string(REGEX MATCHALL "\n  [a-z]+" commands "${overview}")
foreach(command IN LISTS commands)
  string(STRIP "${command}" command)
  string(TOUPPER "${command}" title)
  help_of(text ${command})
  verbatim(lines "${text}")
  string(APPEND page ".SH ${title}\n${lines}")
endforeach()
string(APPEND page ".SH EXIT STATUS\n0 good; 1 the file or the work failed; 2 wrong usage.\n")
file(WRITE ${PAGE} "${page}")

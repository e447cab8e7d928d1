// The connection of a start to a template: a fork of it says what it was made of, and becomes the
// command once it gets the start's streams and variables.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

#include "tools/support/descriptor.hpp"
#include "tools/template/template_manifest.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::templates {

class TemplatePeer {
 public:
  // Fails with not_found if no template listens in this folder, and with io if what listens there
  // is another user's.
  static Result<TemplatePeer> connect(const std::filesystem::path& folder);

  pid_t process() const noexcept { return process_; }  // of the template
  // Fails with io if the template ends meanwhile, and as parse_template() does.
  Result<TemplateManifest> manifest() const;
  // Has the fork go on as the command. Returns its process id.
  Result<pid_t> go_on(const std::string& variables) const;
  // Waits, and returns the status of wait(2); none if the template has ended before it knew.
  std::optional<int> status() const;
  // Has the template take no further start.
  void end_template() const;

  int descriptor() const noexcept { return socket_.get(); }

 private:
  TemplatePeer(Descriptor socket, pid_t process) : socket_(std::move(socket)), process_(process) {}

  Descriptor socket_;
  pid_t process_;
};

}  // namespace weightmap::cli::templates

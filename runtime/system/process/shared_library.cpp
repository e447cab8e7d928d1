#include "runtime/system/process/shared_library.hpp"

#include <dlfcn.h>

#include "runtime/base/bytes/escape.hpp"

namespace weightmap::os {

Result<SharedLibrary> SharedLibrary::load(const std::string& name) {
  if (void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
    return SharedLibrary(handle);
  const char* const reason = ::dlerror();
  return failure(ErrorCode::unsupported, "cannot load " + bytes::quote(name, 4096) + ": " +
                                             bytes::escape(reason ? reason : "no reason given"));
}

void* SharedLibrary::find(const char* symbol) const noexcept { return ::dlsym(handle_, symbol); }

}  // namespace weightmap::os

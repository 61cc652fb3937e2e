#include "core/plan/devices.hpp"

#include <cstdlib>
#include <filesystem>

#include "core/base/text.hpp"

namespace mortise {

namespace {
int devices_seen(const std::string& variable, const std::string& files) {
  int n = 0;
  if (const char* shown = variable.empty() ? nullptr : std::getenv(variable.c_str())) {
    for (const std::string& one : split(shown, ',')) {
      if (one.empty() || one[0] == '-') break;  // what follows is not seen either
      ++n;
    }
    return n;
  }
  const std::filesystem::path path = files;
  const std::string name = path.filename().string();
  std::error_code error;
  for (std::filesystem::directory_iterator i(path.parent_path(), error), end; !error && i != end; i.increment(error)) {
    const std::string file = i->path().filename().string();
    n += file.size() > name.size() && file.starts_with(name) &&
         file.find_first_not_of("0123456789", name.size()) == std::string::npos;
  }
  return n;
}
}  // namespace

int devices_seen(const PluginInfo& info) {
  const Value *variable = fact_of(info, "needs", "hidden_by"), *files = fact_of(info, "needs", "numbered");
  return files ? devices_seen(variable ? variable->as_text() : "", files->as_text()) : 0;
}

}  // namespace mortise

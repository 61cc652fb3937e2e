#pragma once
#include <string>

namespace mortise {

std::string host_name();  // of this machine; "" if it has none

}  // namespace mortise

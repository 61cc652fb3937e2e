// What else runs on this machine, as the kernel counts it in /proc/loadavg: "7.20 4.19 2.42 9/312 4711".
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace mortise {

// How many others run: both in the mean of the last minute and now, so that neither a pause nor a moment counts.
inline int others_running(const std::string& loadavg) {
  double mean = 0;
  int now = 0;
  if (std::sscanf(loadavg.c_str(), "%lf %*f %*f %d/", &mean, &now) != 2) return 0;
  return std::max(0, std::min(static_cast<int>(std::lround(mean)), now - 1));  // one of them asks
}

// Fewer threads than `threads` that would not share a processor with others; `threads` if that is so already.
inline int threads_without_sharing(int threads, int processors, int others) {
  if (others == 0) return threads;
  return std::clamp(processors - others, 1, threads);
}

}  // namespace mortise

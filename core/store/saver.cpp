#include "core/store/saver.hpp"

#include <spdlog/fmt/fmt.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>

#include "core/base/text.hpp"

namespace fs = std::filesystem;

namespace mortise {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

Diagnostic not_saved(int64_t step, const std::string& why) {
  return as_warning(
      trouble(kExitIo, "checkpoint_not_saved", fmt::format("step {} is not saved: {}", with_commas(step), why)));
}

std::string free_space(int64_t keep) {
  return keep > 1 ? fmt::format("free space; [checkpoint] keep = {} keeps one checkpoint less", keep - 1)
                  : "free space";
}

}  // namespace

Saver::Saver(SaverOptions options)
    : options_(std::move(options)),
      folder_(options_.root,
              {.resumed = options_.resumed, .confirmed = options_.confirmed, .best = options_.best.step}),
      bests_({options_.best}), last_step_(options_.resumed), last_best_(options_.best.step),
      confirmed_(options_.confirmed) {}

void Saver::save(int64_t step, const std::function<Snapshot()>& capture) {
  const auto is_saved = [&] { return step == last_step_ && best().step == last_best_ && !is_outdated_; };
  const auto before = Clock::now();
  if (!can_save() || is_saved()) return;
  if (under_way_.valid()) take(under_way_.get());
  if (is_saved()) return;
  Snapshot s = capture();
  is_outdated_ = false;
  const int64_t best_step = best().step;
  bool background = options_.background;
  if (background) {
    try {
      copy_borrowed(s, std::exchange(copies_, {}));
    } catch (const std::bad_alloc&) {
      background = false;
    }
  }
  if (background) {
    copies_ = std::move(s);
    try {
      under_way_ = std::async(std::launch::async, [this, step, best_step] {
        ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10);  // of this thread: the step's come first
        Saved saved = write(copies_, step, best_step);
        saved.background = true;
        return saved;
      });
      held_s_ = seconds_since(before);
      return;
    } catch (const std::exception&) {  // the machine gives no thread: at once, then
      s = std::exchange(copies_, {});
    }
  }
  Saved saved = write(s, step, best_step);
  saved.held_s = seconds_since(before);
  take(std::move(saved));
}

// Of one it would be no help to keep less.
bool Saver::has_two() const try { return folder_.all().size() > 1; } catch (const Failure&) {
  return false;
}

Saved Saver::write(const Snapshot& s, int64_t step, int64_t best_step) {
  Saved saved;
  const auto before = Clock::now();
  saved.step = step;
  saved.path = fmt::format("{}/step-{}", options_.root, step);
  try {
    must_fit(fs::path(options_.root).parent_path().string(), s.bytes());
    saved.bytes = static_cast<int64_t>(folder_.save(s, options_.format, step, options_.plugins).bytes());
  } catch (const Failure& f) {
    saved.failure = not_saved(step, f.diagnostic.message);
    if (f.diagnostic.code == "no_space") saved.failure->fixes = {free_space(has_two() ? options_.retention.keep : 0)};
  } catch (const std::exception& e) {
    saved.failure = not_saved(step, e.what());
  }
  if (!saved.failure) folder_.retire(options_.retention, best_step);
  saved.seconds = seconds_since(before);
  return saved;
}

void Saver::take(Saved saved) {
  if (saved.background) saved.held_s = held_s_;
  if (saved.failure) {
    is_outdated_ = true;
    bests_.erase(std::remove_if(bests_.begin() + 1, bests_.end(), [&](const Best& b) { return b.step == saved.step; }),
                 bests_.end());
  } else {
    last_step_ = saved.step;
    settled_ = false;
    if (bests_.size() > 1 && bests_[1].step == saved.step) bests_.erase(bests_.begin());
    last_best_ = bests_.front().step;
  }
  outcomes_.push_back(std::move(saved));
  confirm(confirmed_);
}

void Saver::confirm(int64_t step) {
  confirmed_ = std::max(confirmed_, step);
  if (!can_save() || under_way_.valid()) return;  // take() comes here again
  folder_.confirm(confirmed_);
  if (settled_ || last_step_ > confirmed_) return;
  folder_.retire(options_.retention, bests_.front().step);
  settled_ = true;
}

bool Saver::has(int64_t step) const {
  std::error_code error;
  return can_save() && fs::exists(fmt::format("{}/step-{}", options_.root, step), error);
}

int64_t Saver::newest_confirmed() const {
  if (!can_save()) return -1;
  for (const Found& found : checkpoints_in(options_.root))
    if (found.step <= confirmed_) return found.step;
  return -1;
}

std::vector<Saved> Saver::outcomes(bool wait) {
  if (under_way_.valid() && (wait || under_way_.wait_for(std::chrono::seconds(0)) == std::future_status::ready))
    take(under_way_.get());
  return std::exchange(outcomes_, {});
}

}  // namespace mortise

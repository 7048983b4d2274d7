#include "ulpscope/core/observe/profile.h"

#include <algorithm>

namespace ulpscope {

double Profile::computing_seconds() const {
  double seconds = 0;
  for (const ProfileEntry& entry : entries) seconds += entry.seconds;
  return seconds;
}

double Profile::share_of(const ProfileEntry& entry) const {
  const double computing = computing_seconds();
  return computing > 0 ? entry.seconds / computing : 0;
}

double Profiler::lap() {
  const auto now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(moment_, now)).count();
}

void Profiler::First::before(const OpEvent&, std::span<OutputRecord* const>) { owner.lap(); }

void Profiler::Last::before(const OpEvent&, std::span<OutputRecord* const>) { owner.recording_seconds_ += owner.lap(); }

void Profiler::First::after(const OpEvent& event) {
  backend.synchronize();
  ProfileEntry& entry = owner.entries_[{&event.op, event.phase}];
  ++entry.calls;
  entry.seconds += owner.lap();
}

void Profiler::Last::after(const OpEvent&) { owner.recording_seconds_ += owner.lap(); }

std::vector<Observer*> Profiler::around(const std::vector<Observer*>& observers) {
  std::vector<Observer*> all{&first_};
  all.insert(all.end(), observers.begin(), observers.end());
  all.push_back(&last_);
  return all;
}

Profile Profiler::profile() const {
  Profile profile{{}, recording_seconds_, total_seconds_};
  for (const auto& [key, entry] : entries_) profile.entries.push_back({key.first->name, key.second, entry.calls, entry.seconds});
  std::stable_sort(profile.entries.begin(), profile.entries.end(),
                   [](const ProfileEntry& a, const ProfileEntry& b) { return a.seconds > b.seconds; });
  return profile;
}

}  // namespace ulpscope

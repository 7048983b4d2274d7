#include "ulpscope/recorder/aten/memory.h"

#include <algorithm>

namespace ulpscope::aten {
namespace {

constexpr size_t kMostParts = 64;  // of one storage: older ones are forgotten

// Whether ranges of bytes leave no gap.
bool covers(std::vector<std::pair<uint64_t, uint64_t>> ranges, const Extent& extent) {
  std::sort(ranges.begin(), ranges.end());
  uint64_t end = extent.begin;
  for (const auto& [from, to] : ranges) {
    if (from > end) return false;
    end = std::max(end, to);
  }
  return end >= extent.end;
}

}  // namespace

const MadePointer& constant() {
  static const auto made = std::make_shared<Made>();
  return made;
}

const MadePointer& unmade() {
  static const auto made = std::make_shared<Made>();
  return made;
}

void Makers::prefer_recorded() {
  if (last == nullptr || is_recorded(last)) return;
  const auto part = std::find_if(others.begin(), others.end(), is_recorded);
  if (part != others.end()) std::swap(last, *part);
}

Memory::~Memory() { clear(); }

void Memory::clear() {
  for (const auto& [storage, entry] : storages_) adapter_.release(adapter_.context, storage);
  storages_.clear();
}

void Memory::write(const Tensor& tensor, const MadePointer& made) {
  // Where there are no elements, there is no memory or a view of some, of which nothing was made.
  if (tensor.storage == 0 || (count_of_elements(tensor) == 0 && tensor.storage_bytes > 0)) return;
  const auto [at, is_new] = storages_.try_emplace(tensor.storage);
  if (is_new) adapter_.retain(adapter_.context, tensor.storage);
  Storage& entry = at->second;
  if (static_cast<uint64_t>(count_of_elements(tensor) * element_size(tensor)) >= tensor.storage_bytes) {
    entry.whole = made;
    entry.parts.clear();
    return;
  }
  const Extent extent = extent_of(tensor);
  if (extent.is_dense)
    std::erase_if(entry.parts,
                  [&](const Part& part) { return part.extent.begin >= extent.begin && part.extent.end <= extent.end; });
  entry.parts.push_back({extent, made});
  if (entry.parts.size() > kMostParts) {
    entry.parts.erase(entry.parts.begin());
    entry.whole = unmade();  // what the part covered has a maker that is not known any more
  }
}

void Memory::join(const Tensor& tensor, std::span<const MadePointer> made, bool is_complete) {
  const bool is_known = is_complete && !made.empty() && made.size() <= kMostParts;
  write(tensor, is_known ? made[0] : unmade());
  const auto at = storages_.find(tensor.storage);
  if (at == storages_.end()) return;
  Extent extent = extent_of(tensor);
  extent.is_dense = false;
  for (const MadePointer& each : made.subspan(is_known ? 1 : 0, std::min(made.size() - (is_known ? 1 : 0), kMostParts)))
    at->second.parts.push_back({extent, each});
}

void Memory::forget(const Tensor& tensor) {
  if (storages_.erase(tensor.storage) > 0) adapter_.release(adapter_.context, tensor.storage);
}

Makers Memory::find(const Tensor& tensor) const {
  const auto at = storages_.find(tensor.storage);
  if (at == storages_.end()) return {};
  const Storage& entry = at->second;
  const bool whole_is_known = entry.whole != nullptr && entry.whole != unmade();
  if (entry.parts.empty() || count_of_elements(tensor) == 0) return {entry.whole, {}, whole_is_known};
  const Extent extent = extent_of(tensor);
  std::vector<MadePointer> made;
  bool is_complete = false;
  std::vector<std::pair<uint64_t, uint64_t>> covered;
  for (auto part = entry.parts.rbegin(); part != entry.parts.rend() && !is_complete; ++part) {
    if (part->extent.end <= extent.begin || part->extent.begin >= extent.end) continue;
    if (std::find(made.begin(), made.end(), part->made) == made.end()) made.push_back(part->made);
    is_complete = part->extent.is_dense && part->extent.begin <= extent.begin && part->extent.end >= extent.end;
    if (part->extent.is_dense)
      covered.emplace_back(std::max(part->extent.begin, extent.begin), std::min(part->extent.end, extent.end));
  }
  if (is_complete) {
    is_complete = std::find(made.begin(), made.end(), unmade()) == made.end();
  } else {
    is_complete = covers(covered, extent);
    if (!is_complete && whole_is_known) {
      made.push_back(entry.whole);
      is_complete = true;
    }
    if (made.empty()) return {entry.whole, {}, false};
  }
  const MadePointer last = made.front();
  made.erase(made.begin());
  return {last, std::move(made), is_complete};
}

void Memory::prune() {
  std::erase_if(storages_, [&](const auto& each) {
    if (adapter_.is_expired(adapter_.context, each.first) == 0) return false;
    adapter_.release(adapter_.context, each.first);
    return true;
  });
}

}  // namespace ulpscope::aten

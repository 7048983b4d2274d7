#include "ulpscope/core/observe/call_log.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

void CallLog::begin_pass(bool has_forgotten) {
  keep_at_most(0);
  calls_.clear();
  views_.clear();
  first_kept_ = 0;
  has_forgotten_ = has_forgotten;
}

void CallLog::keep_at_most(size_t most) {
  while (bytes_kept_ > most) {
    LoggedView& view = views_[first_kept_++];
    if (view.kept_bytes == 0) continue;
    bytes_kept_ -= view.kept_bytes;
    view.watch->let_go();
  }
}

void CallLog::add(const OpEvent& event) {
  if (calls_.size() == kMostCalls) {
    begin_pass(true);
  }
  const OpCall& call = event.call;
  LoggedCall& logged = calls_.emplace_back();
  logged.op = &event.op;
  logged.id = event.id;
  logged.attributes = event.attributes;
  logged.arithmetic = call.arithmetic;
  logged.seed = call.seed;
  logged.stream = call.stream;
  logged.first_view = static_cast<uint32_t>(views_.size());
  logged.inputs = static_cast<uint32_t>(call.inputs.size());
  logged.outputs = static_cast<uint32_t>(call.outputs.size());
  // An op that writes over an input raises its version when the observers are done with it.
  const auto shares = [](const Tensor& tensor, std::span<const Tensor> tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& other) { return other.body()->storage.get() == tensor.body()->storage.get(); });
  };
  const bool writes_over =
      std::any_of(event.outputs.begin(), event.outputs.end(), [&](const Tensor& output) { return shares(output, event.inputs); });
  const auto add = [&](const TensorView& view, const Tensor& tensor, const ValueKey& value) {
    LoggedView& added = views_.emplace_back();
    added.view = view;
    added.value = value;
    if (view.data == nullptr) return;
    Storage& storage = tensor.storage();
    added.watch = storage.watch();
    const bool is_written_over = writes_over && shares(tensor, event.inputs) && shares(tensor, event.outputs);
    added.version = storage.version + (is_written_over ? 1 : 0);
    if (storage.bytes() == 0 || storage.bytes() > kMostBytesOfOne) return;
    added.kept_bytes = storage.bytes();
    bytes_kept_ += added.kept_bytes;
    added.watch->keep();
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) add(call.inputs[i], event.inputs[i], event.inputs[i].body()->value);
  for (size_t i = 0; i < call.outputs.size(); ++i) add(call.outputs[i], event.outputs[i], {event.id, static_cast<uint32_t>(i)});
  keep_at_most(kMostBytesKept);
}

bool CallLog::is_gone(const LoggedCall& call) const {
  const auto gone = [](const LoggedView& view) { return view.watch && !view.watch->holds(view.version); };
  const auto inputs = inputs_of(call), outputs = outputs_of(call);
  return std::any_of(inputs.begin(), inputs.end(), gone) || std::any_of(outputs.begin(), outputs.end(), gone);
}

std::optional<CallLog::Made> CallLog::maker_of(const Operand& operand, CaptureFollow& why_not) const {
  const LoggedView& read = inputs_of(calls_[operand.call])[static_cast<size_t>(operand.input)];
  why_not = has_forgotten_ ? CaptureFollow::gone : CaptureFollow::given;
  if (!read.watch) return std::nullopt;
  for (size_t i = operand.call; i-- > 0;) {
    const LoggedCall& call = calls_[i];
    if (call.id != read.value.op || read.value.slot >= call.outputs) continue;
    const LoggedView& made = outputs_of(call)[read.value.slot];
    if (made.watch.get() != read.watch.get()) continue;
    if (call.op->function == OpFunction::source) return std::nullopt;
    why_not = CaptureFollow::gone;
    if (is_gone(call) || made.view.dtype != read.view.dtype || !is_dense(made.view)) return std::nullopt;
    // The input may be a view of what the call made.
    const auto size = static_cast<int64_t>(info(made.view.dtype).size);
    const int64_t bytes = static_cast<const std::byte*>(read.view.data) - static_cast<const std::byte*>(made.view.data) +
                          offset_of(read.view, operand.element) * size;
    if (bytes < 0 || bytes % size != 0 || bytes / size >= made.view.size()) return std::nullopt;
    return Made{i, static_cast<int>(read.value.slot), index_at(made.view, bytes / size)};
  }
  return std::nullopt;
}

// Grows from the origin, an op at a time.
class CallLog::Tree {
 public:
  Tree(const CallLog& log, Backend& backend) : log_(log), backend_(backend) {}

  std::vector<CaptureNode> grow(size_t at, int slot) {
    const LoggedView& output = log_.outputs_of(log_.calls_[at])[static_cast<size_t>(slot)];
    CaptureNode origin;
    origin.made_by = output.value;
    origin.view = output.view;
    add(origin, {});
    const OpCall call = prepare(log_.calls_[at]);
    explain(0, at, backend_.capture_nonfinite(call, slot), kMostOfOrigin);
    for (int op = 0; op < kMostOpsUp; ++op) {
      std::vector<size_t> reached = std::exchange(leaves_, {});
      for (const size_t node : most_telling(reached, kMostFollowed)) follow(node);
    }
    return std::move(nodes_);
  }

 private:
  // What is known of a node beside what is recorded.
  struct Place {
    std::optional<Operand> operand;  // of a call; the origin is none
    bool broke = false;              // belongs to the term at which a sum broke
  };

  void add(const CaptureNode& node, const Place& place) {
    nodes_.push_back(node);
    places_.push_back(place);
  }

  // The views have to stay where they are until the next call is prepared.
  OpCall prepare(const LoggedCall& logged) {
    inputs_.clear();
    outputs_.clear();
    for (const LoggedView& view : log_.inputs_of(logged)) inputs_.push_back(view.view);
    for (const LoggedView& view : log_.outputs_of(logged)) outputs_.push_back(view.view);
    OpCall call;
    call.op = logged.op->name;
    call.inputs = inputs_;
    call.outputs = outputs_;
    call.attributes = &logged.attributes;
    call.arithmetic = logged.arithmetic;
    call.seed = logged.seed;
    call.stream = logged.stream;
    return call;
  }

  // Makes the operands of the call's element, which is node `parent`, nodes: at most so many of them.
  void explain(size_t parent, size_t call, const ElementCapture& capture, size_t most) {
    const std::span<const LoggedView> inputs = log_.inputs_of(log_.calls_[call]);
    nodes_[parent].element = capture.element;
    nodes_[parent].value = capture.value;
    nodes_[parent].follow = CaptureFollow::followed;
    nodes_[parent].terms = capture.terms;
    nodes_[parent].broke_at = capture.broke_at;
    nodes_[parent].partial_sum = capture.partial_sum;
    nodes_[parent].attributes = &log_.calls_[call].attributes;
    const auto operand_node = [&](int input) {
      CaptureNode node;
      node.parent = static_cast<int64_t>(parent);
      node.operand = input;
      node.made_by = inputs[static_cast<size_t>(input)].value;
      node.view = inputs[static_cast<size_t>(input)].view;
      return node;
    };
    std::vector<CaptureNode> operands;
    std::vector<Place> places;
    for (const ElementCapture::Operand& operand : capture.operands) {
      CaptureNode node = operand_node(operand.input);
      node.element = operand.element;
      node.value = operand.value;
      node.overwritten = operand.overwritten;
      node.term = operand.term;
      operands.push_back(node);
      places.push_back({Operand{call, operand.input, operand.element}, operand.term >= 0 && operand.term == capture.broke_at});
    }
    std::vector<size_t> kept = in_order_of_weight(operands, places);
    kept.resize(std::min(kept.size(), most));
    std::sort(kept.begin(), kept.end());  // as the op reads them
    for (const size_t i : kept) {
      leaves_.push_back(nodes_.size());
      add(operands[i], places[i]);
    }
    for (const RowFacts& row : capture.rows) {
      CaptureNode node = operand_node(row.input);
      node.overwritten = row.overwritten;
      node.row = row;
      add(node, {});
    }
  }

  // What is nonfinite comes first, then what belongs to a sum's broken term; the factors of a term weigh what it does.
  static std::vector<size_t> in_order_of_weight(std::span<const CaptureNode> nodes, std::span<const Place> places) {
    struct Weight {
      bool nonfinite, broke;
      double magnitude;
      bool operator<(const Weight& other) const {
        return std::tie(nonfinite, broke, magnitude) < std::tie(other.nonfinite, other.broke, other.magnitude);
      }
    };
    std::vector<Weight> weights;
    for (size_t begin = 0, end = 0; begin < nodes.size(); begin = end) {
      const auto same_term = [&](const CaptureNode& node) {
        return node.term >= 0 && node.term == nodes[begin].term && node.parent == nodes[begin].parent;
      };
      Weight weight{false, places[begin].broke, 1};
      do {
        weight.nonfinite |= !std::isfinite(nodes[end].value);
        weight.magnitude *= std::isfinite(nodes[end].value) ? std::abs(nodes[end].value) : 1;
      } while (++end < nodes.size() && same_term(nodes[end]));
      weights.insert(weights.end(), end - begin, weight);
    }
    std::vector<size_t> order(nodes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights[b] < weights[a]; });
    return order;
  }

  // Of these nodes, each element once.
  std::vector<size_t> most_telling(std::span<const size_t> among, size_t most) const {
    std::vector<CaptureNode> nodes;
    std::vector<Place> places;
    for (const size_t node : among) {
      nodes.push_back(nodes_[node]);
      places.push_back(places_[node]);
    }
    std::vector<size_t> chosen;
    std::set<std::tuple<uint64_t, uint8_t, int64_t>> seen;
    for (const size_t i : in_order_of_weight(nodes, places)) {
      if (chosen.size() == most) break;
      if (seen.emplace(nodes[i].made_by.op, nodes[i].made_by.slot, nodes[i].element).second) chosen.push_back(among[i]);
    }
    return chosen;
  }

  // Through casts and copies up to a call that computes.
  void follow(size_t node) {
    for (;;) {
      // A call that wrote over its operand holds the value after it.
      if (nodes_[node].overwritten) {
        nodes_[node].follow = CaptureFollow::gone;
        return;
      }
      const auto made = log_.maker_of(*places_[node].operand, nodes_[node].follow);
      if (!made) return;
      const LoggedCall& logged = log_.calls_[made->call];
      const bool passes_on = has_trait(logged.op->function, kSameValues);
      const int64_t element = nodes_[node].element;
      const OpCall call = prepare(logged);
      explain(node, made->call, backend_.capture_element(call, made->slot, made->element), kMostOperands);
      nodes_[node].element = element;  // as its reader counts
      if (!passes_on || leaves_.empty() || nodes_[leaves_.back()].parent != static_cast<int64_t>(node)) return;
      node = leaves_.back();
      leaves_.pop_back();
    }
  }

  const CallLog& log_;
  Backend& backend_;
  std::vector<CaptureNode> nodes_;
  std::vector<Place> places_;
  std::vector<size_t> leaves_;  // nodes that may be followed, of the op before
  std::vector<TensorView> inputs_, outputs_;
};

std::vector<CaptureNode> CallLog::capture(Backend& backend, size_t call, int slot) const {
  return Tree(*this, backend).grow(call, slot);
}

std::vector<CaptureNode> CallLog::capture_earlier(Backend& backend, uint64_t id, int slot) const {
  const auto call = std::find_if(calls_.begin(), calls_.end(), [&](const LoggedCall& logged) { return logged.id == id; });
  if (call == calls_.end() || is_gone(*call)) return {};
  return capture(backend, static_cast<size_t>(call - calls_.begin()), slot);
}

}  // namespace ulpscope

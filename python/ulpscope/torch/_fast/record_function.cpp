// Ops of PyTorch seen by callbacks of at::RecordFunction: no Python runs for an op. A shared library for one minor version of
// PyTorch, whose inline functions are compiled into it; it links libtorch_cpu and libc10 alone, and is called through C functions.
//
// Ops nest: an op is the topmost call that is no composite of others, is not wrapped by autocast, and works on tensors that have
// memory.
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "described.h"
#include "device_statistics.h"
#include "ulpscope_aten.h"

#define EXPORT __attribute__((visibility("default")))

namespace {

constexpr size_t kRecordings = 4;  // at once

// The functions of libulpscope.so that are called.
struct Functions {
  uint32_t (*add_schema)(ulpscope_aten*, const ulpscope_aten_schema*);
  void (*before)(ulpscope_aten*, const ulpscope_aten_op*);
  void (*after)(ulpscope_aten*, const ulpscope_aten_op*);
  int (*begin_function)(ulpscope_aten*, const char*, int64_t, int64_t, const ulpscope_aten_tensor*, uint32_t);
  void (*end_function)(ulpscope_aten*);
  void (*handed_on)(ulpscope_aten*, int64_t, const char*, const ulpscope_aten_edge*, const ulpscope_aten_tensor*, uint32_t,
                    const ulpscope_aten_tensor*, uint32_t);
  void (*end_backward)(ulpscope_aten*);
  int (*is_named)(ulpscope_aten*, uint64_t);
  int (*begin_inner_module)(ulpscope_aten*, ulpscope_name, int, int64_t, int);
  int (*is_opaque)(ulpscope_aten*, const ulpscope_aten_tensor*, uint32_t);
  void (*end_module)(ulpscope_aten*, ulpscope_name);
  void (*fail)(ulpscope_aten*, const char*);
  void (*lock)(ulpscope_aten*);
  int (*try_lock)(ulpscope_aten*);
  void (*unlock)(ulpscope_aten*);
  // Python's: whether this thread has its global lock, and how to leave it and to take it back.
  int (*has_python)();
  void* (*leave_python)();
  void (*return_to_python)(void*);
  int (*is_capturing)();  // whether a CUDA graph is captured on the current stream
};

// ---- a recording

class Recording;
std::array<Recording*, kRecordings> recordings{};

// The call of an op that goes on, with its arguments, which the dispatcher does not keep; or of a torch.autograd.Function.
struct Frame : at::ObserverContext {
  Recording* recording = nullptr;
  const Overload* overload = nullptr;  // of an op
  c10::SmallVector<c10::IValue, 12> inputs;
  int64_t sequence = -1;
  int exceptions = 0;
};

thread_local std::array<int, kRecordings> depths{};  // inside of ops that are told

struct Hook : torch::autograd::FunctionPostHook {
  Hook(std::shared_ptr<Recording*> owner, int64_t number, std::string name_of_node, std::vector<ulpscope_aten_edge> edges_below)
      : recording(std::move(owner)), node(number), name(std::move(name_of_node)), edges(std::move(edges_below)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override;
  // Compiled autograd asks it of each hook, and this one has nothing that would have to be compiled again.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const {}
  std::shared_ptr<Recording*> recording;  // nullptr in it once the pass is no longer followed
  int64_t node;
  std::string name;  // of a node that a program defined, or ""
  std::vector<ulpscope_aten_edge> edges;
};

class Recording {
 public:
  explicit Recording(size_t slot) : slot_(slot) {
    adapter_.context = this;
    adapter_.retain = [](void* context, uint64_t storage) { static_cast<Recording*>(context)->retain(storage); };
    adapter_.is_expired = [](void* context, uint64_t storage) { return static_cast<Recording*>(context)->is_expired(storage); };
    adapter_.release = [](void* context, uint64_t storage) { static_cast<Recording*>(context)->release_storage(storage); };
    adapter_.is_capturing = [](void* context, const ulpscope_aten_tensor* tensor) {
      return static_cast<Recording*>(context)->on_device(
          1, [&](DeviceStatistics& statistics) { return static_cast<int>(statistics.is_capturing(tensor_of(*tensor))); });
    };
    adapter_.measure = [](void* context, const ulpscope_aten_measure* measure, ulpscope_aten_rows* rows) {
      return static_cast<Recording*>(context)->on_device(0, [&](DeviceStatistics& statistics) {
        *rows = statistics.take(*measure, view_of(measure->tensor), view_of(measure->cast_from), view_of(measure->before),
                                view_of(measure->update), view_of(measure->gradient));
        return 1;
      });
    };
    adapter_.keep = [](void* context, const ulpscope_aten_tensor* tensor, ulpscope_aten_tensor* copy) {
      return static_cast<Recording*>(context)->on_device(0, [&](DeviceStatistics&) {
        const Unseen unseen;
        return static_cast<Recording*>(context)->keep(view_of(tensor).clone(), *copy);
      });
    };
    adapter_.ask = [](void* context, const ulpscope_aten_asked* asked, ulpscope_aten_tensor* update) {
      return static_cast<Recording*>(context)->on_device(0, [&](DeviceStatistics& statistics) {
        return static_cast<Recording*>(context)->keep(
            statistics.asked_update(*asked, view_of(asked->weight), view_of(asked->gradient), view_of(asked->first),
                                    view_of(asked->second), view_of(asked->steps)),
            *update);
      });
    };
    adapter_.let_go = [](void* context, uint64_t handle) { static_cast<Recording*>(context)->kept_.erase(handle); };
    adapter_.wait = [](void* context) {
      return static_cast<Recording*>(context)->on_device(
          0, [](DeviceStatistics& statistics) { return static_cast<int>(statistics.wait()); });
    };
    adapter_.row = [](void* context, uint64_t number) { return static_cast<Recording*>(context)->device_.row(number); };
    adapter_.function_of = [](void* context, const ulpscope_aten_tensor* tensor, ulpscope_aten_function* function) {
      return static_cast<Recording*>(context)->function_of(*tensor, *function);
    };
  }
  // The library's knowledge is gone by now.
  ~Recording() {
    aten_ = nullptr;
    end();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  const ulpscope_aten_adapter& adapter() const { return adapter_; }
  size_t slot() const { return slot_; }

  void begin(ulpscope_aten* aten, ulpscope_aten_state* state, const Functions& functions);
  void end() {
    // Another thread cannot take it back; there it finds no recording from now on.
    if (handle_ != 0 && std::this_thread::get_id() == thread_) at::removeCallback(handle_);
    handle_ = 0;
    release();
    aten_ = nullptr;
  }
  // While an optimizer steps, its ops are not looked at. PyTorch boxes the arguments and results of every op for a callback that is
  // enabled, whatever that does with them.
  void rest(bool rests) {
    rests_ = rests;
    if (handle_ == 0 || std::this_thread::get_id() != thread_) return;
    if (rests)
      at::disableCallback(handle_);
    else
      at::reenableCallback(handle_);
  }
  void fail(const char* why) {
    if (aten_ != nullptr) functions_.fail(aten_, why);
  }

  // Several threads run one backward pass where there are several devices. A thread that waits leaves Python's lock to the others.
  class Lock {
   public:
    explicit Lock(Recording& recording) : recording_(recording), aten_(recording.aten_) {
      const Functions& functions = recording.functions_;
      if (functions.try_lock(recording.aten_) != 0) return;
      void* const left = functions.has_python() != 0 ? functions.leave_python() : nullptr;
      functions.lock(recording.aten_);
      if (left != nullptr) functions.return_to_python(left);
    }
    ~Lock() { recording_.functions_.unlock(aten_); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Recording& recording_;
    ulpscope_aten* const aten_;  // the recording may be closed while it is locked
  };
  bool is_recorded() const { return aten_ != nullptr && state_->is_stopped == 0; }

  std::unique_ptr<at::ObserverContext> started(const at::RecordFunction& function);
  void ended(const at::RecordFunction& function, Frame& frame);
  void function_ended() {
    if (is_recorded()) functions_.end_function(aten_);
  }
  const ulpscope_aten_tensor* describe_handles(const uint64_t* handles, uint32_t count);
  // False where the session has more to do: nothing began, and the module goes on.
  bool begin_inner_module(uint32_t name, bool is_compiled);
  bool end_module(uint32_t name, uint64_t output);
  int follow(const uint64_t* roots, uint32_t count);
  void release();
  void handed_on(const Hook& hook, const torch::autograd::variable_list& gradients, const torch::autograd::variable_list& arrived);

 private:
  // The number of a node: each thread counts those that it makes, and nodes of a backward pass on a device are that thread's.
  // Numbers of the thread that records are what Python has for them.
  int64_t number_of(uint64_t sequence, uint64_t thread) const;
  int64_t number_of(const torch::autograd::Node& node) const { return number_of(node.sequence_nr(), node.thread_id()); }
  int64_t number_here(int64_t sequence) const {
    return number_of(static_cast<uint64_t>(sequence), at::RecordFunction::currentThreadId());
  }
  const Overload* overload_of(const at::RecordFunction& function);  // nullptr: it is no op
  void describe_schema(const c10::OperatorHandle& op, Overload& overload);
  void retain(uint64_t storage);
  int is_expired(uint64_t storage);
  void release_storage(uint64_t storage);
  int function_of(const ulpscope_aten_tensor& tensor, ulpscope_aten_function& function);
  std::unique_ptr<at::ObserverContext> function_started(const at::RecordFunction& function);
  // Returns what `body` gives, or `otherwise` where it fails, which ends the recording.
  template <typename Body>
  int on_device(int otherwise, const Body& body) {
    try {
      return body(device_);
    } catch (const std::exception& error) {
      fail(error.what());
    }
    return otherwise;
  }
  // Keeps a tensor on a device until the library lets it go.
  int keep(const at::Tensor& tensor, ulpscope_aten_tensor& to) {
    describe(tensor, to);
    kept_.emplace(to.handle, tensor);
    return 1;
  }
  // Describes what is known before the op runs.
  void describe_op(const Frame& frame);
  // This thread's ops are none of the recording's: it is another than that which began, and in no backward pass.
  bool is_of_others() const { return std::this_thread::get_id() != thread_ && torch::autograd::get_current_graph_task_id() == -1; }
  bool is_silent() const { return !is_recorded() || state_->muted > 0 || rests_; }

  struct Retained {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int count;
  };
  struct NodeType {
    bool accumulates = false;  // into the gradient of a parameter
    std::string name;          // "" where its objects have names of their own
  };
  struct Followed {
    decltype(torch::autograd::get_current_node()) node;
    uintptr_t hook;
  };

  size_t slot_;
  ulpscope_aten_adapter adapter_{};
  ulpscope_aten* aten_ = nullptr;
  ulpscope_aten_state* state_ = nullptr;
  Functions functions_{};
  at::CallbackHandle handle_ = 0;
  std::thread::id thread_;  // which has the callback
  bool rests_ = false;
  uint64_t number_of_thread_ = 0;  // as nodes have it
  std::unordered_map<uint64_t, Retained> retained_;
  std::unordered_map<const char*, Overload> overloads_;   // by the text of its name, which lives as long as the overload
  std::unordered_map<const char*, NodeType> node_types_;  // by the text of the type's name
  std::vector<Followed> followed_;
  std::shared_ptr<Recording*> follower_ = std::make_shared<Recording*>(this);
  // These are of the call that is told, and keep their memory from call to call.
  ulpscope_aten_op op_{};
  std::vector<ulpscope_aten_argument> arguments_;
  std::vector<ulpscope_aten_tensor> tensors_, results_, described_;
  std::vector<std::unique_ptr<int64_t[]>> integers_;
  std::unordered_map<uint64_t, at::Tensor> kept_;
  DeviceStatistics device_;
  std::string python_node_, function_name_;
};

// Runs `body` while no other thread is in the recording. Its failure ends the recording and nothing else.
template <typename Body>
void guarded(Recording& recording, const Body& body) noexcept {
  if (!recording.is_recorded()) return;
  const Recording::Lock lock(recording);
  try {
    body();
  } catch (const std::exception& error) {
    recording.fail(error.what());
  } catch (...) {
    recording.fail("an unknown error in a callback");
  }
}

torch::autograd::variable_list Hook::operator()(const torch::autograd::variable_list& outputs,
                                                const torch::autograd::variable_list& inputs) {
  if (Recording* const of = *recording) guarded(*of, [&] { of->handed_on(*this, outputs, inputs); });
  return outputs;
}

template <size_t Slot>
std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  std::unique_ptr<at::ObserverContext> frame;
  Recording* const recording = recordings[Slot];
  if (recording == nullptr || depths[Slot] > 0) return frame;
  guarded(*recording, [&] { frame = recording->started(function); });
  return frame;
}

template <size_t Slot>
void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* const frame = static_cast<Frame*>(context);
  if (frame == nullptr) return;
  Recording* const recording = recordings[Slot];
  if (frame->overload == nullptr) {
    if (recording == frame->recording) guarded(*recording, [&] { recording->function_ended(); });
    return;
  }
  --depths[Slot];
  if (recording == frame->recording) guarded(*recording, [&] { recording->ended(function, *frame); });
}

template <size_t Slot>
at::RecordFunctionCallback callback() {
  return at::RecordFunctionCallback(on_start<Slot>, on_end<Slot>)
      .needsInputs(true)
      .needsOutputs(true)
      .scopes({at::RecordScope::FUNCTION});
}

at::RecordFunctionCallback callback_of(size_t slot) {
  switch (slot) {
    case 0:
      return callback<0>();
    case 1:
      return callback<1>();
    case 2:
      return callback<2>();
    default:
      return callback<3>();
  }
}

void Recording::begin(ulpscope_aten* aten, ulpscope_aten_state* state, const Functions& functions) {
  aten_ = aten;
  state_ = state;
  functions_ = functions;
  device_.asks_python = functions.is_capturing;
  depths[slot_] = 0;
  thread_ = std::this_thread::get_id();
  number_of_thread_ = at::RecordFunction::currentThreadId();
  handle_ = at::addThreadLocalCallback(callback_of(slot_));
}

int64_t Recording::number_of(uint64_t sequence, uint64_t thread) const {
  constexpr uint64_t kNone = UINT64_MAX;  // an accumulator's
  if (sequence == kNone) return -1;
  return static_cast<int64_t>(thread == number_of_thread_ ? sequence : thread << ULPSCOPE_ATEN_SEQUENCE_BITS | sequence);
}

const Overload* Recording::overload_of(const at::RecordFunction& function) {
  // Overloads of one name have texts of their own.
  const auto known = overloads_.find(function.name());
  if (known != overloads_.end() && known->second.is_type.size() == function.inputs().size()) return &known->second;
  const auto name = function.operator_name();
  const auto op = name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
  if (!op || !op->hasSchema()) return nullptr;  // a range of the program's, whose name may not live long
  // An overload that was defined again may have the text of one that is gone.
  Overload overload;
  describe_schema(*op, overload);
  if (overload.is_type.size() != function.inputs().size()) return nullptr;
  return &overloads_.insert_or_assign(function.name(), std::move(overload)).first->second;
}

void Recording::describe_schema(const c10::OperatorHandle& op, Overload& overload) {
  const c10::FunctionSchema& schema = op.schema();
  overload.is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  overload.returns = !schema.returns().empty();
  for (const c10::DispatchKey key : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA})
    if (op.hasKernelForDispatchKey(key)) overload.autocast = overload.autocast.add(key);
  if (overload.is_composite)
    for (const c10::DispatchKey key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA})
      if (op.hasKernelForDispatchKey(key)) overload.leaves = overload.leaves.add(key);
  std::vector<ulpscope_aten_parameter> parameters(schema.arguments().size());
  std::vector<ulpscope_aten_tensor> tensors;
  std::vector<std::unique_ptr<int64_t[]>> integers;
  std::vector<c10::IValue> defaults(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    ulpscope_aten_parameter& parameter = parameters[i];
    const std::string type = argument.real_type()->repr_str();
    parameter.name = argument.name().c_str();
    parameter.is_tensor = type.find("Tensor") != std::string::npos;
    parameter.is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    parameter.is_keyword = argument.kwarg_only();
    overload.is_type.push_back(type.find("ScalarType") != std::string::npos);
    overload.writes = overload.writes || parameter.is_written;
    if (argument.default_value()) defaults[i] = *argument.default_value();
    argument_of(defaults[i], overload.is_type[i] != 0, parameter.default_value, tensors, integers);
  }
  ulpscope_aten_schema described{};
  described.name = schema.name().c_str();
  described.parameters = parameters.data();
  described.parameters_count = static_cast<uint32_t>(parameters.size());
  for (const c10::Argument& result : schema.returns())
    described.returns_alias = described.returns_alias || result.alias_info() != nullptr;
  described.is_pointwise = op.hasTag(at::Tag::pointwise);
  overload.writes = overload.writes || schema.name().find("batch_norm") != std::string::npos || schema.name().starts_with("c10d::");
  overload.number = functions_.add_schema(aten_, &described);
}

// The keys of the tensors among an op's arguments.
c10::DispatchKeySet keys_of(c10::ArrayRef<const c10::IValue> inputs) {
  c10::DispatchKeySet keys;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) keys = keys | tensor.unsafeGetTensorImpl()->key_set();
  };
  for (const c10::IValue& input : inputs) {
    if (input.isTensor())
      add(input.toTensor());
    else if (input.isTensorList())
      for (const c10::IValue& each : input.toListRef()) add(each.toTensor());
  }
  return keys;
}

// Autocast casts what is of the device that it is on for, and calls the op again.
bool is_wrapped_by_autocast(const Overload& overload, c10::DispatchKeySet keys) {
  const c10::DispatchKeySet excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  const auto wraps = [&](c10::DispatchKey autocast, c10::DispatchKey device) {
    return overload.autocast.has(autocast) && !excluded.has(autocast) && keys.has_backend(c10::toBackendComponent(device));
  };
  return !overload.autocast.empty() && (wraps(c10::DispatchKey::AutocastCPU, c10::DispatchKey::CPU) ||
                                        wraps(c10::DispatchKey::AutocastCUDA, c10::DispatchKey::CUDA));
}

std::unique_ptr<at::ObserverContext> Recording::started(const at::RecordFunction& function) {
  // A callback that another recording left in another thread is none of this one's, but for its backward passes.
  if (is_silent() || is_of_others()) return nullptr;
  const Overload* const overload = overload_of(function);
  if (overload == nullptr) return function_started(function);
  const auto inputs = function.inputs();
  const c10::DispatchKeySet keys = keys_of(inputs);
  const auto has_leaf = [&](c10::DispatchKey key) {
    return overload->leaves.has(key) && keys.has_backend(c10::toBackendComponent(key));
  };
  if (overload->is_composite && !has_leaf(c10::DispatchKey::CPU) && !has_leaf(c10::DispatchKey::CUDA)) return nullptr;
  if (keys.has_any(kWrappers) || is_wrapped_by_autocast(*overload, keys)) return nullptr;
  auto frame = std::make_unique<Frame>();
  frame->recording = this;
  frame->overload = overload;
  frame->inputs.assign(inputs.begin(), inputs.end());
  frame->sequence = function.seqNr();
  frame->exceptions = std::uncaught_exceptions();
  ++depths[slot_];
  if (overload->writes) {
    describe_op(*frame);
    functions_.before(aten_, &op_);
  }
  return frame;
}

void Recording::describe_op(const Frame& frame) {
  arguments_.resize(frame.inputs.size());
  tensors_.clear();
  integers_.clear();
  for (size_t i = 0; i < frame.inputs.size(); ++i)
    argument_of(frame.inputs[i], frame.overload->is_type[i] != 0, arguments_[i], tensors_, integers_);
  op_ = {};
  op_.schema = frame.overload->number;
  op_.arguments = arguments_.data();
  op_.tensors = tensors_.data();
  op_.grad_enabled = at::GradMode::is_enabled();
  op_.task = torch::autograd::get_current_graph_task_id();
  op_.node = op_.made_node = -1;
  if (op_.task == -1) return;
  const auto node = torch::autograd::get_current_node();
  if (!node) return;
  op_.node = number_of(*node);
  const auto [at, is_new] = node_types_.try_emplace(typeid(*node).name());
  NodeType& type = at->second;
  if (is_new) {
    type.accumulates = dynamic_cast<const torch::autograd::AccumulateGrad*>(&*node) != nullptr;
    if (!is_python(*node)) type.name = node->name();
  }
  if (type.accumulates) {
    op_.is_accumulate_grad = 1;
    op_.variable =
        reinterpret_cast<uint64_t>(static_cast<const torch::autograd::AccumulateGrad&>(*node).variable.unsafeGetTensorImpl());
    return;
  }
  if (type.name.empty()) python_node_ = node->name();  // each class of Python has a name of its own
  op_.node_name = type.name.empty() ? python_node_.c_str() : type.name.c_str();
}

// Ranges that have a sequence number and are no op are calls of torch.autograd.Function, whose node gets the number.
std::unique_ptr<at::ObserverContext> Recording::function_started(const at::RecordFunction& function) {
  if (function.seqNr() < 0 || function.operator_name()) return nullptr;
  tensors_.clear();
  for (const c10::IValue& input : function.inputs())
    if (input.isTensor()) describe(input.toTensor(), tensors_.emplace_back());
  const int is_of_step =
      functions_.begin_function(aten_, function.name(), number_here(function.seqNr()), torch::autograd::get_current_graph_task_id(),
                                tensors_.data(), static_cast<uint32_t>(tensors_.size()));
  if (is_of_step == 0) return nullptr;
  auto frame = std::make_unique<Frame>();
  frame->recording = this;
  return frame;
}

void Recording::ended(const at::RecordFunction& function, Frame& frame) {
  // An op that raised made nothing.
  if (is_silent() || std::uncaught_exceptions() > frame.exceptions) return;
  const auto& outputs = function.outputs();
  if (frame.overload->returns && outputs.empty()) return;
  describe_op(frame);
  results_.clear();
  for (const c10::IValue& output : outputs) {
    if (output.isTensor())
      describe(output.toTensor(), results_.emplace_back());
    else if (output.isTensorList())
      for (const c10::IValue& each : output.toListRef()) describe(each.toTensor(), results_.emplace_back());
    else
      describe(at::Tensor(), results_.emplace_back());
  }
  op_.results = results_.data();
  op_.results_count = static_cast<uint32_t>(results_.size());
  const int64_t newest = static_cast<int64_t>(at::sequence_number::peek()) - 1;
  // Behind the op's own node there may be one of the view that it wrote to; an op that has none leaves the number as it was.
  op_.made_node = number_here(frame.sequence >= 0 && newest >= frame.sequence ? frame.sequence : newest);
  functions_.after(aten_, &op_);
}

// ---- memory

void Recording::retain(uint64_t storage) {
  const auto at = retained_.find(storage);
  if (at != retained_.end()) {
    ++at->second.count;
    return;
  }
  auto owned = c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(reinterpret_cast<c10::StorageImpl*>(storage));
  retained_.emplace(storage, Retained{c10::weak_intrusive_ptr<c10::StorageImpl>(owned), 1});
}

int Recording::is_expired(uint64_t storage) {
  const auto at = retained_.find(storage);
  return at == retained_.end() || at->second.storage.expired();
}

void Recording::release_storage(uint64_t storage) {
  const auto at = retained_.find(storage);
  if (at != retained_.end() && --at->second.count == 0) retained_.erase(at);
}

int Recording::function_of(const ulpscope_aten_tensor& tensor, ulpscope_aten_function& function) {
  const at::Tensor owned(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(
      reinterpret_cast<c10::TensorImpl*>(tensor.handle)));
  const auto& node = owned.grad_fn();
  if (!node || !is_python(*node)) return 0;
  function_name_ = node->name();
  function.sequence = number_of(*node);
  function.name = function_name_.c_str();
  function.slot = static_cast<uint32_t>(owned.output_nr());
  return 1;
}

const ulpscope_aten_tensor* Recording::describe_handles(const uint64_t* handles, uint32_t count) {
  described_.resize(count + 1);
  for (uint32_t i = 0; i < count; ++i) {
    at::Tensor tensor;
    if (handles[i] != 0)
      tensor = at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(
          reinterpret_cast<c10::TensorImpl*>(handles[i])));
    describe(tensor, described_[i]);
  }
  return described_.data();
}

// ---- modules

bool Recording::begin_inner_module(uint32_t name, bool is_compiled) {
  if (aten_ == nullptr) return false;  // in a step between those that are looked into, the session knows when the next one comes
  const Lock lock(*this);
  if (is_of_others()) return false;  // the session counts what other threads call
  if (state_->is_stopped != 0 || state_->muted > 0 || state_->paused > 0) return true;
  return functions_.begin_inner_module(aten_, name, is_compiled, torch::autograd::get_current_graph_task_id(), 0) ==
         ULPSCOPE_ATEN_INNER;
}

bool Recording::end_module(uint32_t name, uint64_t output) {
  if (aten_ == nullptr) return false;
  const Lock lock(*this);
  if (state_->paused > 0 || is_of_others()) return true;
  if (state_->is_stopped == 0 && state_->muted == 0 && functions_.is_opaque(aten_, describe_handles(&output, 1), 1) != 0)
    return false;
  functions_.end_module(aten_, name);
  return true;
}

// ---- backward passes

int Recording::follow(const uint64_t* roots, uint32_t count) {
  std::vector<torch::autograd::Node*> pending;
  std::unordered_set<torch::autograd::Node*> seen;
  bool reaches = false;
  std::vector<decltype(torch::autograd::get_current_node())> owners;
  for (uint32_t i = 0; i < count; ++i) {
    const auto* const impl = reinterpret_cast<c10::TensorImpl*>(roots[i]);
    const at::Tensor root(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(
        const_cast<c10::TensorImpl*>(impl)));
    if (root.grad_fn() && seen.insert(&*root.grad_fn()).second) pending.push_back(&*root.grad_fn());
  }
  while (!pending.empty()) {
    torch::autograd::Node* const node = pending.back();
    pending.pop_back();
    std::vector<ulpscope_aten_edge> edges;
    for (const auto& below : node->next_edges()) {
      ulpscope_aten_edge edge{};
      if (below.function) {
        edge.exists = 1;
        edge.slot = static_cast<int32_t>(below.input_nr);
        torch::autograd::Node* const next = &*below.function;
        if (const auto* const accumulate = dynamic_cast<torch::autograd::AccumulateGrad*>(next)) {
          edge.to_parameter = 1;
          edge.handle = reinterpret_cast<uint64_t>(accumulate->variable.unsafeGetTensorImpl());
          reaches = reaches || functions_.is_named(aten_, edge.handle) != 0;
        } else {
          edge.sequence = number_of(*next);
          if (seen.insert(next).second) pending.push_back(next);
        }
      }
      edges.push_back(edge);
    }
    const int64_t number = number_of(*node);
    // Autograd goes through the hooks of a node that runs just now.
    if (const auto running = torch::autograd::get_current_node(); running && &*running == node) continue;
    const uintptr_t hook = node->add_post_hook(
        std::make_unique<Hook>(follower_, number, is_python(*node) ? node->name() : std::string(), std::move(edges)));
    followed_.push_back({node->getptr(), hook});
  }
  return reaches;
}

void Recording::release() {
  // Autograd goes through the hooks of a node that runs just now, as where one of the program's ends the recording.
  const auto running = torch::autograd::get_current_node();
  for (Followed& each : followed_)
    if (!running || &*running != &*each.node) each.node->del_post_hook(each.hook);
  followed_.clear();
  *follower_ = nullptr;
  follower_ = std::make_shared<Recording*>(this);
  if (aten_ == nullptr) return;
  const Lock lock(*this);
  functions_.end_backward(aten_);
}

void Recording::handed_on(const Hook& hook, const torch::autograd::variable_list& gradients,
                          const torch::autograd::variable_list& arrived) {
  if (is_silent()) return;
  const size_t count = std::min(hook.edges.size(), gradients.size());
  results_.resize(count);
  for (size_t i = 0; i < count; ++i) describe(gradients[i], results_[i]);
  tensors_.clear();
  if (!hook.name.empty())
    for (const at::Tensor& each : arrived) describe(each, tensors_.emplace_back());
  functions_.handed_on(aten_, hook.node, hook.name.empty() ? nullptr : hook.name.c_str(), hook.edges.data(), results_.data(),
                       static_cast<uint32_t>(count), tensors_.data(), static_cast<uint32_t>(tensors_.size()));
}

}  // namespace

extern "C" {

EXPORT uint32_t ulpscope_fast_interface() { return ULPSCOPE_ATEN_INTERFACE; }

// nullptr where as many recordings go on as there may be.
EXPORT void* ulpscope_fast_open() {
  for (size_t slot = 0; slot < kRecordings; ++slot)
    if (recordings[slot] == nullptr) return recordings[slot] = new Recording(slot);
  return nullptr;
}
EXPORT const ulpscope_aten_adapter* ulpscope_fast_adapter(void* recording) {
  return &static_cast<Recording*>(recording)->adapter();
}
EXPORT void ulpscope_fast_take_host_as_device(int is_taken) { takes_host_as_device = is_taken != 0; }
// Begins to look at the ops of this thread, and of its backward passes.
EXPORT void ulpscope_fast_begin(void* recording, ulpscope_aten* aten, ulpscope_aten_state* state, const Functions* functions) {
  static_cast<Recording*>(recording)->begin(aten, state, *functions);
}
// Looks at ops no longer; those that go on are not told.
EXPORT void ulpscope_fast_end(void* recording) { static_cast<Recording*>(recording)->end(); }
// Begins to rest, or looks at ops again.
EXPORT void ulpscope_fast_rest(void* recording, int rests) { static_cast<Recording*>(recording)->rest(rests != 0); }
EXPORT void ulpscope_fast_close(void* recording) {
  auto* const closed = static_cast<Recording*>(recording);
  recordings[closed->slot()] = nullptr;
  delete closed;
}
// Tensors by the addresses of their TensorImpl, valid until the next call; 0: none.
EXPORT const ulpscope_aten_tensor* ulpscope_fast_describe(void* recording, const uint64_t* handles, uint32_t count) {
  return static_cast<Recording*>(recording)->describe_handles(handles, count);
}
// Begins and ends the module of that name, in another and with one output. False: it did not, since the session has more to do.
EXPORT bool ulpscope_fast_begin_inner_module(void* recording, uint32_t name, int is_compiled) {
  return static_cast<Recording*>(recording)->begin_inner_module(name, is_compiled != 0);
}
EXPORT bool ulpscope_fast_end_module(void* recording, uint32_t name, uint64_t output) {
  return static_cast<Recording*>(recording)->end_module(name, output);
}
EXPORT int ulpscope_fast_follow(void* recording, const uint64_t* roots, uint32_t count) {
  return static_cast<Recording*>(recording)->follow(roots, count);
}
EXPORT void ulpscope_fast_release(void* recording) { static_cast<Recording*>(recording)->release(); }
}

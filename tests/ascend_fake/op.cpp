#include "op.h"

#include <algorithm>
#include <cstring>

#include "numbers.h"

namespace ascend_fake {
namespace {

uint64_t hashed(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

// F18: depends on the op and its shapes alone, is often 0 and, with a seed, often odd.
uint64_t workspace_size(uint64_t seed, const std::string& key) {
  const uint64_t chance = mixed(seed, hashed(key));
  if (chance % 3 == 0) return 0;
  if (seed == 0) return 1024 * (1 + chance / 3 % 4);
  return 1 + chance / 3 % 5000;
}

template <typename T>
T& object_of(Fake& f, Registry<T>& registry, const void* handle, const char* what) {
  if (handle == nullptr) throw Refusal{kNull, std::string(what) + " is null"};
  T* object = registry.find(handle);
  if (object != nullptr) return *object;
  f.ledger.violation(14, std::string(what) + ": " + registry.absence(handle));
  throw Refusal{kInvalid, std::string(what) + " does not exist"};
}

void hold(Fake& f, const Executor& executor) {
  for (const void* handle : executor.tensors) ++f.tensors.find(handle)->waiting;
  for (const void* handle : executor.others) {
    if (auto* list = f.lists.find(handle)) ++list->waiting;
    if (auto* scalar = f.scalars.find(handle)) ++scalar->waiting;
    if (auto* array = f.arrays.find(handle)) ++array->waiting;
  }
}

// F17: the executor of this op, not yet used.
Executor& executor_of(Fake& f, const OpName& op, const void* handle) {
  if (handle == nullptr) throw Refusal{kNull, "the executor is null"};
  Executor* executor = f.executors.find(handle);
  if (executor == nullptr) {
    f.ledger.violation(17, "used twice, or " + f.executors.absence(handle));
    throw Refusal{kNullInside, "phase 2 without an executor"};
  }
  if (executor->op != op.name) {
    f.ledger.violation(17, "an executor of " + executor->op);
    throw Refusal{kInvalid, "an executor of another op"};
  }
  return *executor;
}

// F18: what phase 1 asked for, in device memory of its own. The bytes of it.
Ranges checked_workspace(Fake& f, const Executor& executor, const void* workspace, uint64_t size) {
  const uint64_t address = reinterpret_cast<uint64_t>(workspace);
  const Range range{address, address + size};
  const auto refuse = [&](bool broken, const std::string& text) {
    if (!broken) return;
    f.ledger.violation(18, text);
    throw Refusal{kInvalid, text};
  };
  refuse(size != executor.workspace,
         "a workspace of " + std::to_string(size) + " bytes where phase 1 gave " + std::to_string(executor.workspace));
  if (size == 0) return {};
  refuse(workspace == nullptr, "the workspace is null");
  refuse(f.memory.containing(range) == nullptr, "the workspace is not inside one live allocation of the device");
  refuse(address % 32 != 0, "the workspace is not aligned to 32 bytes");
  refuse(overlap({range}, executor.reads) || overlap({range}, executor.writes), "the workspace overlaps an operand");
  return {range};
}

// F19: everything is where it was.
void check_still_there(Fake& f, const Executor& executor) {
  for (const auto* ranges : {&executor.reads, &executor.writes}) {
    for (const Range& range : *ranges) {
      if (f.memory.containing(range) != nullptr) continue;
      f.ledger.violation(19, "an operand was freed between the phases");
      throw Refusal{kInvalid, "an operand was freed"};
    }
  }
}

std::shared_ptr<Task> launched_task(Fake& f, const Executor& executor, const Ranges& workspace) {
  auto task = std::make_shared<Task>();
  task->origin = f.ledger.current();
  task->reads = executor.reads;
  task->writes = executor.writes;
  append(task->writes, workspace);
  task->writes = merged(std::move(task->writes));
  task->workspace = workspace;
  task->run = [run = executor.run, origin = task->origin, workspace](Fake& state) {
    for (const Range& range : workspace) {
      Allocation* home = state.memory.containing(range);
      if (home == nullptr) throw Fault{kCoreFault, "a workspace that was freed"};
      home->mark_garbage(range);
    }
    run(state, origin);
  };
  return task;
}

// Phase 2 ends an executor, whatever it answers.
void consume(aclOpExecutor* handle) {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  Executor* executor = f.executors.find(handle);
  if (executor == nullptr || executor->repeatable) return;
  release_descriptors(f, *executor);
  f.executors.erase(handle);
}

}  // namespace

Operand OpCall::use(const void* handle, const char* what, Role role) {
  const Tensor& tensor = object_of(fake_, fake_.tensors, handle, what);
  if (!tensor.sound) throw Refusal{kInvalid, std::string(what) + " is not a sound tensor"};
  const Operand& operand = tensor.operand;
  bool converted = false;
  for (const Range& range : operand.bytes()) {
    need(fake_.memory.containing(range) != nullptr, std::string(what) + " is freed memory");
    converted = converted || fake_.memory.converted(range) != nullptr;  // descriptors may be older than a conversion
  }
  const bool nz = operand.format == ACL_FORMAT_FRACTAL_NZ;
  if (converted != nz || (nz && role != Role::kWeight)) {
    fake_.ledger.violation(13, std::string(what) + (nz ? ": NZ is for converted weights of a matmul alone"
                                                       : " is described as ND over a converted weight"));
    throw Refusal{kInvalid, "a format that does not fit"};
  }
  tensors_.push_back(handle);
  used_.push_back({operand, role});
  return operand;
}

Operand OpCall::in(const aclTensor* tensor, const char* what) {
  return use(tensor, what, Role::kIn);
}

Operand OpCall::out(const aclTensor* tensor, const char* what) {
  return use(tensor, what, Role::kOut);
}

Operand OpCall::in_out(const aclTensor* tensor, const char* what) {
  return use(tensor, what, Role::kInOut);
}

Operand OpCall::weight(const aclTensor* tensor, const char* what) {
  const Operand operand = use(tensor, what, Role::kWeight);
  if (operand.format != ACL_FORMAT_FRACTAL_NZ) return operand;
  const NzMatrix& matrix = *fake_.memory.converted({operand.address, operand.address + 1});
  const Shape plain{matrix.rows, matrix.columns};
  const Shape turned{matrix.columns, matrix.rows};
  const bool fits =
      operand.type == matrix.type && ((operand.dims == plain && operand.strides == Shape{matrix.columns, 1}) ||
                                      (operand.dims == turned && operand.strides == Shape{1, matrix.columns}));
  violation(13, !fits, std::string(what) + " is not the matrix that was converted, plain or transposed");
  need(fits, "not the matrix that was converted");
  return operand;
}

std::optional<Operand> OpCall::maybe_in(const aclTensor* tensor, const char* what) {
  if (tensor == nullptr) return std::nullopt;
  return in(tensor, what);
}

std::vector<Operand> OpCall::list(const aclTensorList* handle, const char* what) {
  const TensorList& tensors = object_of(fake_, fake_.lists, handle, what);
  need(!tensors.tensors.empty(), std::string(what) + " is an empty list");
  others_.push_back(handle);
  std::vector<Operand> operands;
  for (const void* tensor : tensors.tensors) operands.push_back(use(tensor, what, Role::kIn));
  return operands;
}

double OpCall::scalar(const aclScalar* handle, const char* what) {
  const double value = object_of(fake_, fake_.scalars, handle, what).value;
  others_.push_back(handle);
  return value;
}

Shape OpCall::integers(const aclIntArray* handle, const char* what) {
  const Shape values = object_of(fake_, fake_.arrays, handle, what).values;
  others_.push_back(handle);
  return values;
}

std::optional<Shape> OpCall::maybe_integers(const aclIntArray* array, const char* what) {
  if (array == nullptr) return std::nullopt;
  return integers(array, what);
}

std::string OpCall::word(const char* text, const char* what) {
  need(text != nullptr, std::string(what) + " is null", kNull);
  return text;
}

void OpCall::unused(const void* argument, const char* what, int rule) {
  violation(rule, argument != nullptr, std::string(what) + " is given, of which nothing is known");
}

void OpCall::need(bool holds, const std::string& text, int code) const {
  if (!holds) throw Refusal{code, name_ + ": " + text};
}

void OpCall::violation(int rule, bool broken, const std::string& text) const {
  if (broken) fake_.ledger.violation(rule, text);
}

void OpCall::check_overlaps() const {
  for (size_t i = 0; i < used_.size(); ++i) {
    const Used& output = used_[i];
    if (output.role != Role::kOut && output.role != Role::kInOut) continue;
    violation(15, output.operand.overlaps_itself(), "elements of the output " + text_of(output.operand) + " overlap");
    for (size_t j = 0; j < used_.size(); ++j) {
      const Used& other = used_[j];
      const bool input = other.role == Role::kIn || other.role == Role::kWeight;
      if (i == j || (!input && j < i)) continue;
      if (!overlap(output.operand.bytes(), other.operand.bytes())) continue;
      if (may_alias_ && input && output.operand.same_view(other.operand)) continue;
      violation(15, true, "the output " + text_of(output.operand) + " overlaps " + text_of(other.operand));
    }
  }
}

void OpCall::count_copies() {
  if (takes_strides_) return;
  for (const Used& used : used_) {
    const bool plain = used.role == Role::kWeight ? used.operand.transposed() : used.operand.dense();
    if (plain || used.operand.format == ACL_FORMAT_FRACTAL_NZ) continue;
    ++fake_.counters.internal_copies;
    copies_inside_ = true;
  }
}

void OpCall::count_shape() const {
  std::string key = name_;
  for (const Used& used : used_) key.append(" ").append(text_of(used.operand));
  if (fake_.shapes.insert(key).second && fake_.warm) ++fake_.counters.shapes_after_warm;
}

Executor OpCall::executor() {
  check_overlaps();
  count_copies();
  count_shape();
  Executor result{.origin = fake_.ledger.current(), .op = name_, .copies_inside = copies_inside_};
  std::string key = name_;
  for (const Used& used : used_) {
    key += text_of(used.operand);
    result.operands.push_back(used.operand);
    if (used.role != Role::kOut) append(result.reads, used.operand.bytes());
    if (used.role == Role::kOut || used.role == Role::kInOut) append(result.writes, used.operand.bytes());
  }
  result.reads = merged(std::move(result.reads));
  result.writes = merged(std::move(result.writes));
  result.tensors = tensors_;
  result.others = others_;
  result.workspace = workspace_size(fake_.options.seed, key);
  result.run = [run = std::move(run_)](Fake& state, const Origin& origin) {
    OpRun context(state, origin);
    run(context);
  };
  result.converts = launched_ != nullptr;
  result.launched = std::move(launched_);
  return result;
}

aclnnStatus phase_one(const OpName& op, const char* call, uint64_t* size, aclOpExecutor** executor,
                      const OpArguments& arguments) {
  return answer({.name = call, .since = op.since, .of_operators = true}, [&](Fake& f) {
    ++f.counters.phase_one_calls;
    if (f.options.fail_operators != 0) throw Refusal{f.options.fail_operators, "a failure on demand"};
    if (size == nullptr || executor == nullptr) throw Refusal{kNull, "nowhere to put size or executor"};
    OpCall context(f, op.name);
    arguments(context);
    Executor result = context.executor();
    hold(f, result);
    *size = result.workspace;
    *executor = static_cast<aclOpExecutor*>(f.executors.add(std::move(result)));
    return 0;
  });
}

aclnnStatus phase_two(const OpName& op, void* workspace, uint64_t size, aclOpExecutor* handle, aclrtStream stream) {
  const int code = answer({.name = op.name, .since = op.since, .of_operators = true}, [&](Fake& f) {
    Executor& executor = executor_of(f, op, handle);
    stream_of(f, stream);
    const Ranges scratch = checked_workspace(f, executor, workspace, size);
    check_still_there(f, executor);
    if (executor.converts) check_no_capture(f, "a conversion of a weight");
    if (executor.launched) executor.launched(f);
    ++f.counters.launches;
    if (++executor.launches == 1 && executor.repeatable) release_descriptors(f, executor);
    issue(f, stream, launched_task(f, executor, scratch));
    return 0;
  });
  consume(handle);
  return code;
}

}  // namespace ascend_fake

#include "device/ascend/testing/beside.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/float16.h"
#include "device/ascend/library.h"
#include "device/ascend/testing/tolerances.h"
#include "device/conformance/fake_card.h"

namespace espalier::ascend {
namespace {

constexpr std::int32_t kNoEnd = -1;                                 // of a wait
constexpr std::uint64_t kMemoryOfTheFake = std::uint64_t{1} << 46;  // more than any card has

double decoded(AclType type, const std::byte* element) {
  const auto as = [element]<typename T>(T value) {
    std::memcpy(&value, element, sizeof value);
    return value;
  };
  switch (type) {
    case AclType::f32: return double{as(0.0f)};
    case AclType::f16: return double{f16_to_f32(as(std::uint16_t{0}))};
    case AclType::bf16: return double{bf16_to_f32(as(std::uint16_t{0}))};
    case AclType::i32: return as(std::int32_t{0});
    case AclType::i64: return static_cast<double>(as(std::int64_t{0}));
    case AclType::u8:
    case AclType::boolean: return as(std::uint8_t{0});
  }
  return 0;
}

std::string_view name_of(AclType type) {
  switch (type) {
    case AclType::f32: return "f32";
    case AclType::f16: return "f16";
    case AclType::bf16: return "bf16";
    case AclType::i32: return "i32";
    case AclType::i64: return "i64";
    case AclType::u8: return "u8";
    case AclType::boolean: return "bool";
  }
  return "?";
}

// A card's version of the runtime as the fake's profiles are called.
int profile_of(const Api& card) {
  std::int32_t major = 0, minor = 0, patch = 0;
  if (!card.aclrtGetVersion || card.aclrtGetVersion(&major, &minor, &patch) != 0) return 91;
  return minor < 16 ? 81 : minor == 16 ? 85 : 91;
}

// Elements that follow each other in memory.
struct Run {
  const std::byte* begin;
  std::size_t bytes;
};

// The elements of a layout as runs, in the order of its dimensions.
std::vector<Run> runs_of(const Layout& layout) {
  const std::int64_t bytes = element_bytes(layout.type);
  if (layout.strides.empty()) return {{layout.data, static_cast<std::size_t>(layout.elements() * bytes)}};
  std::size_t outer = layout.sizes.size();
  std::int64_t length = 1;
  while (outer > 0 && layout.strides[outer - 1] == length) length *= layout.sizes[--outer];
  std::vector<Run> runs = {{layout.data, static_cast<std::size_t>(length * bytes)}};
  for (std::size_t d = outer; d-- > 0;) {
    std::vector<Run> all;
    for (std::int64_t i = 0; i < layout.sizes[d]; ++i)
      for (const Run& run : runs) all.push_back({run.begin + i * layout.strides[d] * bytes, run.bytes});
    runs = std::move(all);
  }
  return runs;
}

class Comparison : public std::enable_shared_from_this<Comparison> {
 public:
  Comparison(Api& card, TellDifference tell) : card_(card), tell_(std::move(tell)) {
    AscendFakeOptions options = FakeCard::default_options();
    options.seed = 0;
    options.profile = profile_of(card);
    options.soc_name = card.aclrtGetSocName();
    options.memory_bytes = kMemoryOfTheFake;
    control_.reset(options);
    fake_ = load_api(FakeCard::device_options().library);
  }
  ~Comparison() { fake_->aclFinalize(); }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  // The table keeps this alive.
  void attach() {
    attach_runtime();
    attach_memory();
    attach_descriptors();
    attach_operators();
    for (AnySymbol* captures : std::initializer_list<AnySymbol*>{&card_.aclmdlRICaptureBegin, &card_.aclmdlRICaptureEnd,
                                                                 &card_.aclmdlRIExecuteAsync, &card_.aclmdlRIDestroy})
      captures->address = nullptr;
  }

 private:
  // An operator between its phases.
  struct Planned {
    Arguments arguments = {};
    AclExecutor* executor = nullptr;  // the fake's; null: it refused
    std::uint64_t workspace = 0;
  };
  struct Block {
    std::size_t bytes;
    std::byte* twin;
  };

  // --- the same on the fake -----------------------------------------------------------------------------------------
  template <typename Value>
  Value twin(Value value) const {
    return value;
  }
  void* twin(void* handle) const {
    if (const auto found = handles_.find(handle); found != handles_.end()) return found->second;
    const auto* const address = static_cast<const std::byte*>(handle);
    auto block = memory_.upper_bound(address);
    if (block == memory_.begin()) return handle;
    --block;
    const std::ptrdiff_t offset = address - block->first;
    return offset < static_cast<std::ptrdiff_t>(block->second.bytes) ? block->second.twin + offset : handle;
  }
  void* twin_of(const void* handle) const { return twin(const_cast<void*>(handle)); }
  T twin(T tensor) const { return static_cast<T>(twin_of(tensor)); }
  TL twin(TL list) const { return static_cast<TL>(twin_of(list)); }
  S twin(S scalar) const { return static_cast<S>(twin_of(scalar)); }
  IA twin(IA array) const { return static_cast<IA>(twin_of(array)); }
  void remember(const void* handle, const void* twin) { handles_[handle] = const_cast<void*>(twin); }

  void compare_codes(const std::string& call, AclCode on_card, AclCode on_fake) const {
    if (on_card != on_fake)
      tell_(fmt::format("call {}, {}: the card answers {}, the fake {}", calls_, call, on_card, on_fake));
  }

  // --- kinds of calls -----------------------------------------------------------------------------------------------
  template <typename... Parameters>
  void both(Symbol<AclCode(Parameters...)>& symbol, const Symbol<AclCode(Parameters...)>& on_fake) {
    if (!symbol || !on_fake) return;
    symbol.instead = [self = shared_from_this(), &symbol, &on_fake](Parameters... parameters) {
      ++self->calls_;
      const AclCode code = symbol.of_library(parameters...);
      self->compare_codes(symbol.name, code, on_fake(self->twin(parameters)...));
      return code;
    };
  }
  template <typename... Parameters>
  void creating(Symbol<AclCode(void**, Parameters...)>& symbol, const Symbol<AclCode(void**, Parameters...)>& on_fake) {
    symbol.instead = [self = shared_from_this(), &symbol, &on_fake](void** handle, Parameters... parameters) {
      ++self->calls_;
      void* twin = nullptr;
      const AclCode code = symbol.of_library(handle, parameters...), there = on_fake(&twin, parameters...);
      self->compare_codes(symbol.name, code, there);
      if (code == 0 && there == 0) self->remember(*handle, twin);
      return code;
    };
  }
  template <typename Handle, typename... Parameters>
  void describing(Symbol<Handle*(Parameters...)>& symbol, const Symbol<Handle*(Parameters...)>& on_fake) {
    symbol.instead = [self = shared_from_this(), &symbol, &on_fake](Parameters... parameters) {
      ++self->calls_;
      Handle* const handle = symbol.of_library(parameters...);
      self->remember(handle, on_fake(parameters...));
      return handle;
    };
  }

  void attach_runtime() {
    both(card_.aclrtSetDevice, fake_->aclrtSetDevice);
    both(card_.aclrtResetDevice, fake_->aclrtResetDevice);
    creating(card_.aclrtCreateContext, fake_->aclrtCreateContext);
    both(card_.aclrtDestroyContext, fake_->aclrtDestroyContext);
    both(card_.aclrtSetCurrentContext, fake_->aclrtSetCurrentContext);
    both(card_.aclrtSetSysParamOpt, fake_->aclrtSetSysParamOpt);
    both(card_.aclrtCtxSetSysParamOpt, fake_->aclrtCtxSetSysParamOpt);
    creating(card_.aclrtCreateStream, fake_->aclrtCreateStream);
    both(card_.aclrtDestroyStream, fake_->aclrtDestroyStream);
    both(card_.aclrtSetStreamFailureMode, fake_->aclrtSetStreamFailureMode);
    both(card_.aclrtSynchronizeStreamWithTimeout, fake_->aclrtSynchronizeStreamWithTimeout);
    creating(card_.aclrtCreateEventExWithFlag, fake_->aclrtCreateEventExWithFlag);
    both(card_.aclrtDestroyEvent, fake_->aclrtDestroyEvent);
    both(card_.aclrtRecordEvent, fake_->aclrtRecordEvent);
    both(card_.aclrtSynchronizeEvent, fake_->aclrtSynchronizeEvent);
    both(card_.aclrtSynchronizeEventWithTimeout, fake_->aclrtSynchronizeEventWithTimeout);
  }

  void attach_memory() {
    both(card_.aclrtMemsetAsync, fake_->aclrtMemsetAsync);
    card_.aclrtMalloc.instead = [self = shared_from_this()](void** memory, std::size_t bytes, AclMemoryPolicy policy) {
      ++self->calls_;
      void* twin = nullptr;
      const AclCode code = self->card_.aclrtMalloc.of_library(memory, bytes, policy);
      const AclCode there = self->fake_->aclrtMalloc(&twin, bytes, policy);
      self->compare_codes("aclrtMalloc", code, there);
      if (code == 0 && there == 0)
        self->memory_[static_cast<std::byte*>(*memory)] = {bytes, static_cast<std::byte*>(twin)};
      return code;
    };
    card_.aclrtFree.instead = [self = shared_from_this()](void* memory) {
      ++self->calls_;
      const AclCode code = self->card_.aclrtFree.of_library(memory);
      self->compare_codes("aclrtFree", code, self->fake_->aclrtFree(self->twin(memory)));
      self->memory_.erase(static_cast<std::byte*>(memory));
      return code;
    };
    // The card's pinned memory is any host memory to the fake, which copies at once.
    card_.aclrtMemcpyAsync.instead = [self = shared_from_this()](void* to, std::size_t room, const void* from,
                                                                 std::size_t bytes, AclCopy kind, AclStream stream) {
      ++self->calls_;
      const AclCode code = self->card_.aclrtMemcpyAsync.of_library(to, room, from, bytes, kind, stream);
      if (kind == AclCopy::host_to_device)
        self->compare_codes("aclrtMemcpyAsync", code,
                            self->fake_->aclrtMemcpyAsync(self->twin(to), room, from, bytes, kind, self->twin(stream)));
      return code;
    };
  }

  void attach_descriptors() {
    card_.aclCreateTensor.instead = [self = shared_from_this()](
                                        const std::int64_t* sizes, std::uint64_t rank, AclType type,
                                        const std::int64_t* strides, std::int64_t offset, AclFormat format,
                                        const std::int64_t* storage, std::uint64_t storage_rank, void* data) {
      ++self->calls_;
      AclTensor* const tensor = self->card_.aclCreateTensor.of_library(sizes, rank, type, strides, offset, format,
                                                                       storage, storage_rank, data);
      self->remember(tensor, self->fake_->aclCreateTensor(sizes, rank, type, strides, offset, format, storage,
                                                          storage_rank, self->twin(data)));
      Layout& layout = self->tensors_[tensor];
      layout = Layout(static_cast<std::byte*>(data) + offset * element_bytes(type), type, {});
      layout.sizes.assign(sizes, sizes + rank);
      layout.strides.assign(strides, strides + rank);
      return tensor;
    };
    card_.aclCreateTensorList.instead = [self = shared_from_this()](const AclTensor* const* tensors,
                                                                    std::uint64_t count) {
      ++self->calls_;
      AclTensorList* const list = self->card_.aclCreateTensorList.of_library(tensors, count);
      std::vector<const AclTensor*> twins;
      std::vector<Layout>& layouts = self->lists_[list];
      layouts.clear();
      for (const AclTensor* tensor : std::span(tensors, count)) {
        twins.push_back(self->twin(tensor));
        layouts.push_back(self->tensors_.at(tensor));
      }
      self->remember(list, self->fake_->aclCreateTensorList(twins.data(), count));
      return list;
    };
    describing(card_.aclCreateScalar, fake_->aclCreateScalar);
    describing(card_.aclCreateIntArray, fake_->aclCreateIntArray);
    both(card_.aclDestroyTensor, fake_->aclDestroyTensor);
    both(card_.aclDestroyTensorList, fake_->aclDestroyTensorList);
    both(card_.aclDestroyScalar, fake_->aclDestroyScalar);
    both(card_.aclDestroyIntArray, fake_->aclDestroyIntArray);
    card_.aclDestroyAclOpExecutor.instead = [self = shared_from_this()](AclExecutor* executor) {
      ++self->calls_;
      const AclCode code = self->card_.aclDestroyAclOpExecutor.of_library(executor);
      if (AclExecutor* const there = self->planned_[executor].executor) self->fake_->aclDestroyAclOpExecutor(there);
      self->planned_.erase(executor);
      return code;
    };
  }

  void attach_operators() {
    attach(card_.Embedding, fake_->Embedding);
    attach(card_.IndexSelect, fake_->IndexSelect);
    attach(card_.RmsNorm, fake_->RmsNorm);
    attach(card_.Mm, fake_->Mm);
    attach(card_.BatchMatMul, fake_->BatchMatMul);
    attach(card_.RotaryPositionEmbedding, fake_->RotaryPositionEmbedding);
    attach(card_.InplaceIndexCopy, fake_->InplaceIndexCopy);
    attach(card_.SwiGlu, fake_->SwiGlu);
    attach(card_.Silu, fake_->Silu);
    attach(card_.InplaceAdd, fake_->InplaceAdd);
    attach(card_.Muls, fake_->Muls);
    attach(card_.InplaceMuls, fake_->InplaceMuls);
    attach(card_.Softmax, fake_->Softmax);
    attach(card_.NanToNum, fake_->NanToNum);
    attach(card_.Cast, fake_->Cast);
    attach(card_.InplaceCopy, fake_->InplaceCopy);
    attach(card_.InplaceMaskedFillScalar, fake_->InplaceMaskedFillScalar);
    attach(card_.SWhere, fake_->SWhere);
    attach(card_.Sort, fake_->Sort);
    attach(card_.Amax, fake_->Amax);
    attach(card_.Amin, fake_->Amin);
    attach(card_.EqTensor, fake_->EqTensor);
    attach(card_.LogSumExp, fake_->LogSumExp);
    attach(card_.Cat, fake_->Cat);
    attach(card_.All, fake_->All);
    attach(card_.FusedInferAttentionScoreV2, fake_->FusedInferAttentionScoreV2);
    attach(card_.FusedInferAttentionScoreV4, fake_->FusedInferAttentionScoreV4);
    attach(card_.FusedInferAttentionScoreV5, fake_->FusedInferAttentionScoreV5);
    const auto phases =
        std::ranges::count_if(card_.all, [](const AnySymbol* s) { return s->name.starts_with("aclnn"); });
    check(phases == 2 * operators_, "{} operators are compared, and {} phases called", operators_, phases);
  }

  // --- operators ----------------------------------------------------------------------------------------------------
  template <typename... Parameters>
  void attach(Op<Parameters...>& op, const Op<Parameters...>& on_fake) {
    ++operators_;
    if (!op.plan || !on_fake.plan) return;
    op.plan.instead = [self = shared_from_this(), &op, &on_fake](Parameters... parameters, std::uint64_t* workspace,
                                                                 AclExecutor** executor) {
      ++self->calls_;
      const AclCode code = op.plan.of_library(parameters..., workspace, executor);
      Planned planned;
      const AclCode there = on_fake.plan(self->twin(parameters)..., &planned.workspace, &planned.executor);
      self->compare_codes(op.plan.name, code, there);
      (self->note(parameters, planned.arguments), ...);
      if (code == 0) {
        self->planned_[*executor] = std::move(planned);
      } else if (there == 0) {
        self->fake_->aclDestroyAclOpExecutor(planned.executor);
      }
      return code;
    };
    op.launch.instead = [self = shared_from_this(), &op, &on_fake](void* workspace, std::uint64_t bytes,
                                                                   AclExecutor* executor, AclStream stream) {
      ++self->calls_;
      const AclCode code = op.launch.of_library(workspace, bytes, executor, stream);
      const auto found = self->planned_.extract(executor);
      if (!found.empty()) self->follow(op.launch.name, found.mapped(), on_fake.launch, code, stream);
      return code;
    };
  }

  template <typename Value>
  void note(Value, Arguments&) const {}
  void note(double number, Arguments& arguments) const { arguments.numbers.push_back(number); }
  void note(std::int8_t kind_of_product, Arguments& arguments) const {
    arguments.may_round_f32 = kind_of_product != kKeepType;
  }
  void note(const AclTensor* tensor, Arguments& arguments) const {
    arguments.tensors.push_back(tensor == nullptr ? std::nullopt : std::optional(tensors_.at(tensor)));
  }
  void note(const AclTensorList* list, Arguments& arguments) const { arguments.lists.push_back(lists_.at(list)); }

  // The launch on the fake, in a workspace of its own; then both are waited for and compared.
  void follow(const std::string& op, const Planned& planned,
              const Symbol<AclCode(void*, std::uint64_t, AclExecutor*, AclStream)>& launch, AclCode on_card,
              AclStream stream) {
    void* workspace = nullptr;
    if (planned.executor != nullptr && planned.workspace > 0)
      fake_->aclrtMalloc(&workspace, planned.workspace, AclMemoryPolicy::huge_first);
    if (planned.executor != nullptr)
      compare_codes(op, on_card, launch(workspace, planned.workspace, planned.executor, twin(stream)));
    if (on_card == 0) {
      const AclCode code = card_.aclrtSynchronizeStreamWithTimeout.of_library(stream, kNoEnd);
      compare_codes("the wait for " + op, code, fake_->aclrtSynchronizeStreamWithTimeout(twin(stream), kNoEnd));
      if (code == 0)
        for (const Layout& out : outputs_of(op, planned.arguments))
          compare_output(op, planned.arguments, out, planned.executor != nullptr, stream);
    }
    if (workspace != nullptr) fake_->aclrtFree(workspace);
  }

  // Those of InplaceX come first, others last.
  static std::vector<Layout> outputs_of(std::string_view op, const Arguments& arguments) {
    if (op.starts_with("aclnnInplace")) return {*arguments.tensors.front()};
    std::vector<Layout> given;
    for (const std::optional<Layout>& tensor : arguments.tensors)
      if (tensor) given.push_back(*tensor);
    const std::ptrdiff_t count = op == "aclnnRmsNorm" || op == "aclnnSort" ? 2 : 1;
    return {given.end() - count, given.end()};
  }

  void compare_output(const std::string& op, const Arguments& arguments, const Layout& out, bool computed,
                      AclStream stream) {
    std::vector<std::byte> on_card;
    if (const AclCode code = read_card(out, stream, on_card); code != 0)
      return compare_codes("the copy of what came of " + op, code, 0);
    const std::vector<std::byte> on_fake = read_fake(out);
    if (on_card == on_fake) return;
    if (computed)
      tell_difference(op, out, on_card, on_fake, tolerance_of(op, arguments, out, [this](const Layout& layout) {
                        return elements(layout.type, read_fake(layout));
                      }));
    const std::byte* from = on_card.data();
    for (const Run& run : runs_of(out)) {
      fake_->aclrtMemcpyAsync(twin_of(run.begin), run.bytes, from, run.bytes, AclCopy::host_to_device, twin(stream));
      from += run.bytes;
    }
  }

  void tell_difference(const std::string& op, const Layout& out, const std::vector<std::byte>& on_card,
                       const std::vector<std::byte>& on_fake, const Tolerance& tolerance) const {
    const std::vector<double> ours = elements(out.type, on_card), theirs = elements(out.type, on_fake);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double a = ours[i], b = theirs[i], allowed = tolerance.of(i, a, b);
      if (a == b || (std::isnan(a) && std::isnan(b)) || !std::isfinite(allowed)) continue;
      if (std::fabs(a - b) <= allowed) continue;
      return tell_(
          fmt::format("call {}, {}: {} [{}], element {}: the card has {:.9g}, the fake {:.9g}, {:.3g} apart is allowed",
                      calls_, op, name_of(out.type), fmt::join(out.sizes, ", "), i, a, b, allowed));
    }
  }

  static std::vector<double> elements(AclType type, const std::vector<std::byte>& bytes) {
    const auto width = static_cast<std::size_t>(element_bytes(type));
    std::vector<double> values;
    for (std::size_t at = 0; at < bytes.size(); at += width) values.push_back(decoded(type, bytes.data() + at));
    return values;
  }
  // Into memory that is not pinned: each copy is done when it returns.
  AclCode read_card(const Layout& layout, AclStream stream, std::vector<std::byte>& bytes) const {
    AclCode code = 0;
    for (const Run& run : runs_of(layout)) {
      bytes.resize(bytes.size() + run.bytes);
      if (code == 0)
        code = card_.aclrtMemcpyAsync.of_library(bytes.data() + bytes.size() - run.bytes, run.bytes, run.begin,
                                                 run.bytes, AclCopy::device_to_host, stream);
    }
    return code;
  }
  std::vector<std::byte> read_fake(const Layout& layout) const {
    std::vector<std::byte> bytes;
    for (const Run& run : runs_of(layout)) {
      bytes.resize(bytes.size() + run.bytes);
      control_.peek(twin_of(run.begin), std::span(bytes).last(run.bytes));
    }
    return bytes;
  }

  Api& card_;
  TellDifference tell_;
  FakeCard control_;
  std::shared_ptr<const Api> fake_;
  std::uint64_t calls_ = 0;
  std::int64_t operators_ = 0;
  // By the card's handles and addresses; what is known of a handle stays until another one has its address.
  std::unordered_map<const void*, void*> handles_;
  std::map<const std::byte*, Block> memory_;
  std::unordered_map<const void*, Layout> tensors_;
  std::unordered_map<const void*, std::vector<Layout>> lists_;
  std::unordered_map<const void*, Planned> planned_;
};

}  // namespace

std::function<void(Api&)> beside_the_fake(TellDifference tell) {
  return [tell = std::move(tell)](Api& card) { std::make_shared<Comparison>(card, tell)->attach(); };
}

}  // namespace espalier::ascend

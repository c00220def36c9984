// Life cycle, devices, contexts (F1 to F4).
#include "acl_runtime.h"
#include "fake.h"

namespace ascend_fake {
namespace {

constexpr int kAclMinor81 = 13;
constexpr int kAclMinor85 = 16;
constexpr int kAclMinor91 = 17;

void name_leftovers(Fake& f, int32_t device) {
  for (const std::string& object : f.live_objects(device)) f.ledger.violation(3, "still alive: " + object);
}

void check_device(const Fake& f, int32_t device) {
  if (device < 0 || device >= f.options.device_count) throw Refusal{kBadParameter, "no such device"};
}

const void* default_context(Fake& f, int32_t device) {
  for (const auto& [handle, context] : f.contexts.objects()) {
    if (context.is_default && context.device == device) return reinterpret_cast<const void*>(handle);
  }
  return f.contexts.add({.origin = f.ledger.current(), .device = device, .is_default = true});
}

void drop_default_context(Fake& f, int32_t device) {
  std::erase_if(f.contexts.objects(),
                [&](const auto& entry) { return entry.second.is_default && entry.second.device == device; });
}

int set_parameter(Fake& f, aclSysParamOpt option, int64_t value) {
  if (option < ACL_OPT_DETERMINISTIC || option > ACL_OPT_STRONG_CONSISTENCY) return kBadParameterOfAcl;
  if (option == ACL_OPT_STRONG_CONSISTENCY && f.options.profile < 85) {
    f.ledger.violation(4, "ACL_OPT_STRONG_CONSISTENCY is not in this profile");
  }
  if (value < 0 || value > 1) {
    f.ledger.violation(4, "levels above 1 are not in this profile");
    return kBadParameterOfAcl;
  }
  return 0;
}

}  // namespace

aclError aclInit(const char*) {
  return answer({.name = "aclInit", .needs = Needs::kNothing}, [](Fake& f) {
    if (f.initialised) return kRepeatedInit;
    f.initialised = true;
    return 0;
  });
}

aclError aclFinalize() {
  return answer({.name = "aclFinalize", .needs = Needs::kInit, .releases = true}, [](Fake& f) {
    name_leftovers(f, -1);
    f.initialised = false;
    return 0;
  });
}

aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  return answer({.name = "aclrtGetVersion", .needs = Needs::kInit}, [&](Fake& f) {
    if (major == nullptr || minor == nullptr || patch == nullptr) return kBadParameterOfAcl;
    *major = 1;
    *minor = f.options.profile >= 91 ? kAclMinor91 : f.options.profile >= 85 ? kAclMinor85 : kAclMinor81;
    *patch = 0;
    return 0;
  });
}

const char* aclrtGetSocName() {
  const char* name = nullptr;
  answer({.name = "aclrtGetSocName", .needs = Needs::kInit, .of_host = true}, [&](Fake& f) {
    name = f.soc_name.c_str();
    return 0;
  });
  return name;
}

const char* aclGetRecentErrMsg() {
  const char* text = nullptr;
  answer({.name = "aclGetRecentErrMsg", .needs = Needs::kNothing}, [&](Fake& f) {
    ThreadState& thread = this_thread(f);
    thread.told = std::move(thread.message);
    thread.message.clear();
    if (!thread.told.empty()) text = thread.told.c_str();
    return 0;
  });
  return text;
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  return answer({.name = "aclrtGetDeviceCount", .needs = Needs::kInit}, [&](Fake& f) {
    if (count == nullptr) return kBadParameter;
    *count = static_cast<uint32_t>(f.options.device_count);
    return 0;
  });
}

// A card without HBM answers for DDR.
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return answer({.name = "aclrtGetMemInfo"}, [&](Fake& f) {
    if (free == nullptr || total == nullptr) return kBadParameter;
    const bool has_hbm = !f.is_soc("Ascend310P");
    const bool here = (attr == ACL_HBM_MEM) == has_hbm;
    *total = here ? f.options.memory_bytes : 0;
    *free = here ? f.options.memory_bytes - f.memory.live_bytes() : 0;
    return 0;
  });
}

aclError aclrtSetDevice(int32_t deviceId) {
  return answer({.name = "aclrtSetDevice", .needs = Needs::kInit}, [&](Fake& f) {
    check_device(f, deviceId);
    this_thread(f).context = default_context(f, deviceId);
    return 0;
  });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return answer({.name = "aclrtResetDevice", .needs = Needs::kInit, .releases = true}, [&](Fake& f) {
    check_device(f, deviceId);
    name_leftovers(f, f.options.device_count == 1 ? -1 : deviceId);
    drop_default_context(f, deviceId);
    return 0;
  });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return answer({.name = "aclrtCreateContext", .needs = Needs::kInit}, [&](Fake& f) {
    if (context == nullptr) return kBadParameter;
    check_device(f, deviceId);
    *context = f.contexts.add({.origin = f.ledger.current(), .device = deviceId});
    this_thread(f).context = *context;
    return 0;
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return answer({.name = "aclrtDestroyContext", .needs = Needs::kInit, .releases = true}, [&](Fake& f) {
    const Context* object = f.contexts.find(context);
    if (object == nullptr || object->is_default) {
      f.ledger.violation(2, object == nullptr ? f.contexts.absence(context) : "destroys a default context");
      return kBadHandle;
    }
    for (const auto& [handle, stream] : f.streams.objects()) {
      if (stream.context == context)
        f.ledger.violation(3, "a context with a live stream of " + described(stream.origin));
    }
    f.contexts.erase(context);
    return 0;
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return answer({.name = "aclrtSetCurrentContext", .needs = Needs::kInit, .of_host = true}, [&](Fake& f) {
    if (f.contexts.find(context) == nullptr) {
      f.ledger.violation(2, f.contexts.absence(context));
      return kBadHandle;
    }
    this_thread(f).context = context;
    return 0;
  });
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return answer({.name = "aclrtSetSysParamOpt", .needs = Needs::kInit},
                [&](Fake& f) { return set_parameter(f, opt, value); });
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return answer({.name = "aclrtCtxSetSysParamOpt"}, [&](Fake& f) { return set_parameter(f, opt, value); });
}

}  // namespace ascend_fake

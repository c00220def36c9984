// A runtime that cannot be loaded, because its driver is not installed.
extern "C" int ascend_driver_version();
extern "C" int aclrtDriverVersion() {
  return ascend_driver_version();
}

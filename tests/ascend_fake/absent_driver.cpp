// Stands for the library of the driver when needs_driver.cpp is linked; no test finds it.
extern "C" int ascend_driver_version() {
  return 0;
}

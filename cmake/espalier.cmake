# One library per folder: espalier_library(NAME SOURCES ... LINKS ... TESTS ...).
# LINKS is the folder's "may include" line of docs/architecture.md; TESTS become one program NAME_test.

include(GoogleTest)

add_library(espalier_flags INTERFACE)
target_include_directories(espalier_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(espalier_flags INTERFACE -Wall -Wextra -Werror -ffp-contract=off)

# The baseline instruction set. An older CPU gets one clear line from cli/cpu_baseline.cpp instead of a crash.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(ESPALIER_BASELINE -march=x86-64-v3)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(ESPALIER_BASELINE -march=armv8.2-a)
else()
  message(FATAL_ERROR "espalier: unsupported processor ${CMAKE_SYSTEM_PROCESSOR}, expected x86_64 or aarch64")
endif()
target_compile_options(espalier_flags INTERFACE ${ESPALIER_BASELINE})

if(ESPALIER_SANITIZE)
  target_compile_options(espalier_flags INTERFACE -fsanitize=${ESPALIER_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(espalier_flags INTERFACE -fsanitize=${ESPALIER_SANITIZE})
  target_compile_definitions(espalier_flags INTERFACE ESPALIER_SANITIZED)  # tests take fewer rounds
endif()

function(espalier_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "SOURCES;LINKS")
  if(NOT arg_LABEL)
    set(arg_LABEL fast)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} espalier_flags GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ESPALIER_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                                             ESPALIER_MODELS="${PROJECT_SOURCE_DIR}/models")
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()

function(espalier_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS;PRIVATE_LINKS;TESTS;TEST_LINKS")
  add_library(espalier_${name} STATIC ${arg_SOURCES})
  target_link_libraries(espalier_${name} PUBLIC ${arg_LINKS} PRIVATE ${arg_PRIVATE_LINKS} espalier_flags)
  target_include_directories(espalier_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  if(ESPALIER_TESTS AND arg_TESTS)
    espalier_test(${name}_test SOURCES ${arg_TESTS} LINKS espalier_${name} ${arg_TEST_LINKS})
  endif()
endfunction()

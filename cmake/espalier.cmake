# One library per folder: espalier_library(NAME SOURCES ... LINKS ... TESTS ...).
# LINKS is the folder's "may include" line of docs/architecture.md; TESTS become one program NAME_test; HEADERS are the
# precompiled ones, where they are not espalier_headers.

include(GoogleTest)

add_library(espalier_flags INTERFACE)
target_include_directories(espalier_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
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
  set(ESPALIER_TEST_OPTIONS -O0)  # there it is the libraries that have to be quick
endif()

# Headers that most files read, read once (-DESPALIER_PRECOMPILE=ON): espalier_headers for the libraries,
# espalier_test_headers, espalier_cli_headers. The presets clang and arm leave it off and compile file by file, and so
# show that every file includes what it uses.
function(espalier_precompiled_headers name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LINKS;OPTIONS")
  if(ESPALIER_PRECOMPILE)
    file(CONFIGURE OUTPUT ${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE ${arg_LINKS} fmt::fmt nlohmann_json::nlohmann_json espalier_flags)
    target_compile_options(${name} PRIVATE ${arg_OPTIONS})
    target_precompile_headers(${name} PRIVATE <algorithm> <chrono> <filesystem> <fstream> <functional> <map> <memory>
                              <optional> <random> <ranges> <span> <string> <vector> <fmt/format.h> <fmt/ranges.h>
                              <nlohmann/json.hpp> ${arg_HEADERS})
  endif()
endfunction()

function(espalier_precompile target headers)
  if(ESPALIER_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

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
  target_compile_options(${name} PRIVATE ${ESPALIER_TEST_OPTIONS})
  espalier_precompile(${name} espalier_test_headers)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()

function(espalier_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADERS" "SOURCES;LINKS;PRIVATE_LINKS;TESTS;TEST_LINKS")
  if(NOT arg_HEADERS)
    set(arg_HEADERS espalier_headers)
  endif()
  add_library(espalier_${name} STATIC ${arg_SOURCES})
  target_link_libraries(espalier_${name} PUBLIC ${arg_LINKS} PRIVATE ${arg_PRIVATE_LINKS} espalier_flags)
  target_include_directories(espalier_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  espalier_precompile(espalier_${name} ${arg_HEADERS})
  if(ESPALIER_TESTS AND arg_TESTS)
    espalier_test(${name}_test SOURCES ${arg_TESTS} LINKS espalier_${name} ${arg_TEST_LINKS})
  endif()
endfunction()

# One library per folder: espalier_library(NAME SOURCES ... LINKS ... TESTS ...).
# LINKS are the folders that it includes, all and no others (tests/scripts_test.py), which docs/architecture.md has to allow;
# TESTS become one program NAME_test; HEADERS are the precompiled ones, where they are not those of other folders.
# espalier_test(NAME SOURCES ... LINKS ...) is a test program without a library; SHARDS is into how many processes a long
# one is cut, SLOW a filter of its tests that only `make test-slow` runs (under sanitizers none of them is left out).
#
# Every test has a label: fast (`make test`) or slow (`make test-slow`). In the release build ctest knows the fast ones
# twice: each by its name, for people, and under the label program the whole programs, which is what `make test` runs.

include(GoogleTest)

add_library(espalier_flags INTERFACE)
target_include_directories(espalier_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(espalier_flags INTERFACE -Wall -Wextra -Werror -ffp-contract=off)
# From 13 on g++ warns of references that cannot dangle and of sizes that cannot be: neither is an error.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  target_compile_options(espalier_flags INTERFACE -Wno-error=dangling-reference -Wno-error=stringop-overflow)
endif()

# Collecting garbage below half a gigabyte is a twentieth of g++'s time, for 150 MB of memory.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(espalier_flags INTERFACE --param=ggc-min-heapsize=524288)
endif()

# The baseline instruction set. An older CPU gets one clear line from cli/cpu_baseline.cpp instead of a crash.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(ESPALIER_BASELINE -march=x86-64-v3)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(ESPALIER_BASELINE -march=armv8.2-a)
else()
  message(FATAL_ERROR "espalier: unsupported processor ${CMAKE_SYSTEM_PROCESSOR}, expected x86_64 or aarch64")
endif()
target_compile_options(espalier_flags INTERFACE ${ESPALIER_BASELINE})

find_program(LLD ld.lld)

# It is the folders that compute which have to be quick; optimising the others, whose code is mostly JSON, would be half
# of the build, and the code of tests is compiled once and runs once.
set(ESPALIER_COMPUTING_FOLDERS base tree format device text cache model decode session)
set(ESPALIER_PLAIN_OPTIONS -O1)
set(ESPALIER_TEST_OPTIONS -O0)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With so little optimisation g++ 12 warns of optionals at random.
  list(APPEND ESPALIER_PLAIN_OPTIONS -Wno-maybe-uninitialized)
  list(APPEND ESPALIER_TEST_OPTIONS -Wno-maybe-uninitialized)
endif()
if(ESPALIER_SANITIZE)
  target_compile_options(espalier_flags INTERFACE -fsanitize=${ESPALIER_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(espalier_flags INTERFACE -fsanitize=${ESPALIER_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # What checks the types of functions that are called by pointer is there on x86-64 only. It cannot stand before the
    # parts of a coroutine, which lie in another section, and enums of ours that stand for a C library's are other types.
    target_compile_options(espalier_flags INTERFACE -fno-sanitize=function)
    if(LLD)
      target_link_options(espalier_flags INTERFACE -fuse-ld=lld)  # sanitized programs are large, and there are many
    endif()
  endif()
  target_compile_definitions(espalier_flags INTERFACE ESPALIER_SANITIZED)  # tests take fewer rounds
  set(ESPALIER_COMPUTING_FOLDERS base device text cache model decode)
  set(ESPALIER_PLAIN_OPTIONS -O0)
endif()

# Fuzzers follow the branches of what reads outside data. Only those folders count them (what -fsanitize=fuzzer-no-link
# adds), so that the sanitized tests, which run out of the same build, do not pay for it in the kernels.
set(ESPALIER_FUZZED_FOLDERS base format text trace engine serve_http serve_protocol)
# Without tables for switches: clang 14 puts addresses of an inline function's counters into one outside of the function,
# which then refers to what the linker has thrown away.
set(ESPALIER_COVERAGE -fsanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table -fno-jump-tables)

# Headers that most files read, read once (-DESPALIER_PRECOMPILE=ON): espalier_headers for the libraries that compute,
# espalier_plain_headers for the others, espalier_test_headers, espalier_cli_headers.
function(espalier_precompiled_headers name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LINKS;OPTIONS")
  if(ESPALIER_PRECOMPILE)
    file(CONFIGURE OUTPUT ${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE ${arg_LINKS} fmt::fmt nlohmann_json::nlohmann_json espalier_flags)
    target_compile_options(${name} PRIVATE ${arg_OPTIONS})
    target_precompile_headers(${name} PRIVATE <algorithm> <chrono> <filesystem> <fstream> <functional> <map> <memory>
                              <optional> <random> <ranges> <span> <string> <vector> <fmt/format.h> <fmt/ranges.h>
                              ${PROJECT_SOURCE_DIR}/cmake/precompiled_json.h ${arg_HEADERS})
  endif()
endfunction()

function(espalier_precompile target headers)
  if(ESPALIER_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${headers})  # and what they leave out is in the folder base
  endif()
endfunction()

# espalier_plain(TARGET [HEADERS]): a target that computes nothing: little optimisation, and the headers for it.
function(espalier_plain target)
  set(headers ${ARGN})
  if(NOT headers)
    set(headers espalier_plain_headers)
  endif()
  target_compile_options(${target} PRIVATE ${ESPALIER_PLAIN_OPTIONS})
  espalier_precompile(${target} ${headers})
endfunction()

function(espalier_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;SLOW;TIMEOUT;SHARDS" "SOURCES;LINKS")
  if(NOT arg_LABEL)
    set(arg_LABEL fast)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} espalier_flags GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ESPALIER_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                                             ESPALIER_MODELS="${PROJECT_SOURCE_DIR}/models")
  target_compile_options(${name} PRIVATE ${ESPALIER_TEST_OPTIONS})
  if(LLD AND NOT CMAKE_CROSSCOMPILING)
    target_link_options(${name} PRIVATE -fuse-ld=lld)  # CUDA's kernels are copied into each of forty programs
  endif()
  espalier_precompile(${name} espalier_test_headers)
  if(ESPALIER_SANITIZE)
    espalier_whole_program_test(${name} * ${arg_LABEL} ${arg_SHARDS})
  else()
    set(others *)
    if(arg_SLOW)
      set(others -${arg_SLOW})
      espalier_discover_tests(${name} ${arg_SLOW} slow 1200)
    endif()
    espalier_discover_tests(${name} ${others} ${arg_LABEL} ${arg_TIMEOUT})
    if(arg_LABEL STREQUAL "fast")
      espalier_whole_program_test(${name} ${others} program ${arg_SHARDS})
    endif()
  endif()
endfunction()

function(espalier_discover_tests name filter label timeout)
  gtest_discover_tests(${name} TEST_FILTER ${filter} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${label} TIMEOUT ${timeout})
endfunction()

# A program is one test of ctest, or SHARDS of them, and not one for each of its tests: a program with CUDA's kernels in it
# takes 10 to 40 ms to begin, and under sanitizers leaks are looked for when it ends, which takes seconds on Arm.
# scripts/program_summary.py names and counts the tests inside.
function(espalier_whole_program_test name filter label shards)
  foreach(shard RANGE 1 ${shards})
    set(test ${name})
    if(shards GREATER 1)
      set(test ${name}_${shard}_of_${shards})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${name})
    # The longest begin first, so that no core waits for the other at the end.
    set_tests_properties(${test} PROPERTIES LABELS ${label} TIMEOUT 1200 COST ${shards})
    set(environment GTEST_TOTAL_SHARDS=${shards} GTEST_SHARD_INDEX=${index})
    if(NOT filter STREQUAL "*")  # else a preset may have one
      list(APPEND environment GTEST_FILTER=${filter})
    endif()
    set_tests_properties(${test} PROPERTIES ENVIRONMENT "${environment}")
  endforeach()
endfunction()

function(espalier_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADERS" "SOURCES;LINKS;PRIVATE_LINKS;TESTS;TEST_LINKS")
  if(name IN_LIST ESPALIER_COMPUTING_FOLDERS)
    set(headers espalier_headers)
    set(options)
  else()
    set(headers espalier_plain_headers)
    set(options ${ESPALIER_PLAIN_OPTIONS})
  endif()
  if(arg_HEADERS)
    set(headers ${arg_HEADERS})
  endif()
  add_library(espalier_${name} STATIC ${arg_SOURCES})
  target_compile_options(espalier_${name} PRIVATE ${options})
  target_link_libraries(espalier_${name} PUBLIC ${arg_LINKS} PRIVATE ${arg_PRIVATE_LINKS} espalier_flags)
  target_include_directories(espalier_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  if(ESPALIER_FUZZ AND name IN_LIST ESPALIER_FUZZED_FOLDERS)
    target_compile_options(espalier_${name} PRIVATE ${ESPALIER_COVERAGE})
  endif()
  espalier_precompile(espalier_${name} ${headers})
  if(ESPALIER_TESTS AND arg_TESTS)
    espalier_test(${name}_test SOURCES ${arg_TESTS} LINKS espalier_${name} ${arg_TEST_LINKS})
  endif()
endfunction()

# espalier_read_files(VARIABLE FILE...): the texts of the files, joined. CMake runs again when one of them changes.
function(espalier_read_files variable)
  set(text)
  foreach(path ${ARGN})
    file(READ ${path} part)
    string(APPEND text "${part}")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

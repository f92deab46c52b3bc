# How a folder of src/ becomes a library, its *_test.cc one test program, its *_bench.cc one benchmark program.
#
# A folder's sources are found, not listed: an addition is one new file. What a folder may link stands in src/layers.txt.
# Kernel files get their ISA flags from the suffix of their name alone; everything else is built for x86-64-v2.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
find_package(Boost 1.81 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(SQLite3 REQUIRED)

add_library(hone_flags INTERFACE)
target_include_directories(hone_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(hone_flags INTERFACE -march=x86-64-v2 -Wall -Wextra
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:HONE_MAY_SHADOW>>>:-Wshadow> -Wno-missing-field-initializers)
target_link_libraries(hone_flags INTERFACE Threads::Threads)
if(HONE_WERROR)
  target_compile_options(hone_flags INTERFACE -Werror)
endif()
if(HONE_SANITIZE)
  target_compile_options(hone_flags INTERFACE -fsanitize=${HONE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(hone_flags INTERFACE -fsanitize=${HONE_SANITIZE})
endif()
if(HONE_FUZZ)
  target_compile_options(hone_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_compile_definitions(hone_flags INTERFACE HONE_VERSION="${PROJECT_VERSION}")
if(HONE_UNITY)
  # What a .cc keeps to itself looks, in a file that includes it, as what a header shares.
  target_compile_options(hone_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()

# The suffix of a kernel file picks its flags; a new ISA is one line here.
set(HONE_ISA_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(HONE_ISA_avx512 -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(HONE_ISA_vnni ${HONE_ISA_avx512} -mavx512vnni)
set(HONE_ISA_bf16 ${HONE_ISA_vnni} -mavx512bf16)
set(HONE_ISA_amx ${HONE_ISA_vnni} -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-int8 -mamx-bf16)

# Third-party libraries a folder uses (kept inside .cc files).
set(HONE_EXTERNAL_base spdlog::spdlog fmt::fmt)
set(HONE_EXTERNAL_formats nlohmann_json::nlohmann_json)
set(HONE_EXTERNAL_text PkgConfig::PCRE2 PkgConfig::UTF8PROC nlohmann_json::nlohmann_json)
set(HONE_EXTERNAL_serve nlohmann_json::nlohmann_json Boost::headers OpenSSL::SSL OpenSSL::Crypto)
set(HONE_EXTERNAL_measure nlohmann_json::nlohmann_json CURL::libcurl SQLite::SQLite3)
set(HONE_EXTERNAL_cli nlohmann_json::nlohmann_json CLI11::CLI11 CURL::libcurl OpenSSL::Crypto)

# Options of one folder. compress: what a quantiser writes depends on every rounding, so nothing may be fused.
set(HONE_OPTIONS_compress -ffp-contract=off -fno-math-errno)

# These read and write JSON around work that other folders do (what is long in them, as the exponentials of an evaluation, is
# libm's), and most of their time to compile goes into nlohmann/json: -O1 and one precompiled header take a third of it.
set(HONE_JSON_FOLDERS serve measure cli)
if(NOT HONE_SANITIZE)
  foreach(folder IN LISTS HONE_JSON_FOLDERS)
    set(HONE_OPTIONS_${folder} -O1)
  endforeach()
endif()

# Headers that most files need are compiled once: for those three, and for all folders under sanitizers (at -O2 g++ 12
# warns of its own headers then). Kernel files of an ISA and folders with other options read them as they are.
set(HONE_STANDARD_HEADERS <algorithm> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional> <map> <memory> <optional>
    <span> <string> <string_view> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# With HONE_UNITY, forty files of a target are compiled as one: most of what a file takes is reading the same headers and making
# the same templates again. So the names that a file keeps to itself differ from those of its folder's other files, but for the
# lines of a list (a sampler, a model family, a width of vectors), which have these beginnings of lines and are compiled alone, as
# kernel files are.
set(HONE_LIST_FUNCTIONS "^((Result<void> ReadHf|bool Enabled|bool Before)\\(|#define HONE_LANES)")
function(hone_unity target)
  if(NOT HONE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 40)
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source)
    file(STRINGS ${source} found REGEX "${HONE_LIST_FUNCTIONS}" LIMIT_COUNT 1)
    if(found)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# src/layers.txt: "folder: folders it may include". The order of its lines is the order of building.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/layers.txt)
file(STRINGS ${CMAKE_SOURCE_DIR}/src/layers.txt lines REGEX "^[a-z]+:")
set(HONE_FOLDERS "")
foreach(line IN LISTS lines)
  string(REGEX MATCH "^([a-z]+):(.*)$" _ "${line}")
  set(name ${CMAKE_MATCH_1})
  string(STRIP "${CMAKE_MATCH_2}" allowed)
  separate_arguments(allowed UNIX_COMMAND "${allowed}")
  set(HONE_ALLOWED_${name} ${allowed})
  list(APPEND HONE_FOLDERS ${name})
endforeach()

if(HONE_TESTS)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tmp)  # where tests write
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(HONE_BENCHES)
  find_package(benchmark REQUIRED)
endif()

# hone_test(NAME SOURCES... LIBS...): a GoogleTest program whose tests ctest sees one by one. Skipped tests are counted by ctest.
function(hone_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  hone_unity(${name})
  # hone_base also where a test does not need it: the definitions of its libraries are part of the precompiled header.
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} hone_base hone_flags GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE HONE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE -O0)  # half the time to compile; what they test keeps its own level
  set_target_properties(${name} PROPERTIES HONE_MAY_SHADOW ${HONE_UNITY})  # a neighbour's "using nlohmann::json"
  get_property(first GLOBAL PROPERTY HONE_FIRST_TEST)  # whose precompiled header the others take
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    set_property(GLOBAL PROPERTY HONE_FIRST_TEST ${name})
    target_precompile_headers(${name} PRIVATE <gtest/gtest.h> ${HONE_STANDARD_HEADERS})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}."
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "TEST_TMPDIR=${CMAKE_BINARY_DIR}/tmp/")
endfunction()

function(hone_folder folder)
  set(dir ${CMAKE_SOURCE_DIR}/src/${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(benches ${sources})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")
  set(main ${sources})
  list(FILTER main INCLUDE REGEX "/main\\.cc$")
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")

  set(libs "")
  foreach(name IN LISTS HONE_ALLOWED_${folder})
    list(APPEND libs hone_${name})
  endforeach()
  if(sources)
    add_library(hone_${folder} STATIC ${sources})
    hone_unity(hone_${folder} ${sources})
    target_link_libraries(hone_${folder} PUBLIC hone_flags ${libs} ${HONE_EXTERNAL_${folder}})
  else()
    add_library(hone_${folder} INTERFACE)
    target_link_libraries(hone_${folder} INTERFACE hone_flags ${libs} ${HONE_EXTERNAL_${folder}})
  endif()
  set(optimise -O3)
  if(HONE_SANITIZE)
    set(optimise -O1)  # -O3 over instrumented vector code takes minutes a file
  endif()
  foreach(source IN LISTS sources)
    if(source MATCHES "_(avx2|avx512|vnni|bf16|amx)\\.cc$")
      set(isa ${CMAKE_MATCH_1})  # the next MATCHES forgets it
      set(level ${optimise})
      if(HONE_SANITIZE AND source MATCHES "few_rows_vnni|attention_(bf16|amx)")
        set(level -O0)  # unrolled so far that optimising the instrumented code takes minutes
      endif()
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                                  COMPILE_OPTIONS "${HONE_ISA_${isa}};${level};-fno-exceptions")
    endif()
  endforeach()
  if(NOT HONE_SANITIZE AND folder STREQUAL kernels)
    # Reading and comparing what is quantised goes through it; g++ 12 leaves its loops scalar at -O2.
    set_source_files_properties(src/kernels/dequantize/dequantize.cc PROPERTIES COMPILE_OPTIONS -O3)
  endif()
  if(HONE_SANITIZE AND folder STREQUAL kernels)
    set(HONE_OPTIONS_kernels -O1)  # their scalar definitions would take minutes
  endif()
  if(sources AND HONE_OPTIONS_${folder})
    target_compile_options(hone_${folder} PRIVATE ${HONE_OPTIONS_${folder}})
  endif()
  if(sources AND (folder IN_LIST HONE_JSON_FOLDERS OR (HONE_SANITIZE AND NOT HONE_OPTIONS_${folder})))
    if(NOT TARGET hone_headers)
      file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/headers.cc CONTENT "// Only carries the precompiled header.\n")
      add_library(hone_headers OBJECT ${CMAKE_BINARY_DIR}/headers.cc)
      target_link_libraries(hone_headers PRIVATE hone_flags ${HONE_EXTERNAL_base} nlohmann_json::nlohmann_json)
      target_compile_options(hone_headers PRIVATE ${HONE_OPTIONS_${folder}})
      target_precompile_headers(hone_headers PRIVATE ${HONE_STANDARD_HEADERS})
    endif()
    target_precompile_headers(hone_${folder} REUSE_FROM hone_headers)
  endif()
  if(main)
    add_executable(hone ${main})
    target_link_libraries(hone PRIVATE hone_${folder})
  endif()
  if(HONE_TESTS AND tests)
    hone_test(${folder}_test SOURCES ${tests} LIBS hone_${folder})
  endif()
  if(HONE_BENCHES AND benches)
    add_executable(${folder}_bench ${benches})
    target_link_libraries(${folder}_bench PRIVATE hone_${folder} benchmark::benchmark benchmark::benchmark_main)
  endif()
endfunction()

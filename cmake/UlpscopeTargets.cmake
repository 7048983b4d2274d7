# One way to declare a library, a test program and a benchmark of the project.

# The folders of the libraries, in the order of what they need.
set(ULPSCOPE_FOLDERS base emulation)
if(NOT ULPSCOPE_EMULATION_ONLY)
  list(APPEND ULPSCOPE_FOLDERS kernels trace recorder core analyzers studies gui cli)
endif()

# Sources include "ulpscope/FOLDER/..." and, in tests and benchmarks, "tests/..." or "bench/..." through links in the build tree,
# as users of the installed headers do: the source root is on no include path.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/ulpscope ${PROJECT_BINARY_DIR}/test_include)
foreach(folder IN LISTS ULPSCOPE_FOLDERS)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/include/ulpscope/${folder} SYMBOLIC)
endforeach()
foreach(folder IN ITEMS tests bench)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/test_include/${folder} SYMBOLIC)
endforeach()

# Flags of our own code. Contraction is off so that no compiler fuses a multiplication and an addition: the SIMD kernels and
# their plain twins must round at the same places.
add_library(ulpscope_flags INTERFACE)
set(baseline x86-64-v2)
if(ULPSCOPE_ONE_INSTRUCTION_SET)
  # What the baseline has is what Highway compiles for where it compiles once.
  file(STRINGS /proc/cpuinfo cpu_flags REGEX "^flags" LIMIT_COUNT 1)
  if(cpu_flags MATCHES " avx512f " AND cpu_flags MATCHES " avx512bw " AND cpu_flags MATCHES " avx512dq " AND cpu_flags MATCHES " avx512vl " AND
     cpu_flags MATCHES " avx512cd ")
    set(baseline x86-64-v4)
  elseif(cpu_flags MATCHES " avx2 " AND cpu_flags MATCHES " fma " AND cpu_flags MATCHES " bmi2 ")
    set(baseline x86-64-v3)
  endif()
  target_compile_definitions(ulpscope_flags INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()
target_compile_options(ulpscope_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wno-psabi;-ffp-contract=off;-march=${baseline}>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${ULPSCOPE_WERROR}>>:-Werror>)
target_compile_definitions(ulpscope_flags INTERFACE HWY_DISABLE_PCLMUL_AES)
# Without any optimization GCC 12 does not see that what Highway gives some AVX-512 intrinsics is constant.
if(NOT CMAKE_CXX_FLAGS_DEBUG MATCHES "-O")
  target_compile_options(ulpscope_flags INTERFACE $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<CONFIG:Debug>>:-Og>)
endif()
if(ULPSCOPE_SANITIZE)
  # In instrumented code GCC takes members of a std::variant for uninitialized.
  target_compile_options(ulpscope_flags INTERFACE
    -fsanitize=${ULPSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(ulpscope_flags INTERFACE -fsanitize=${ULPSCOPE_SANITIZE})
  # A process of Python loads the library without its runtime, which has to come first, with what it intercepts of the library of C++
  # behind it; and it leaks what Python never frees.
  if(ULPSCOPE_SANITIZE MATCHES "address")
    set(preloaded "")
    foreach(library libasan.so libstdc++.so)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library} OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE
        COMMAND_ERROR_IS_FATAL ANY)
      file(REAL_PATH ${file} file)
      list(APPEND preloaded ${file})
    endforeach()
    list(JOIN preloaded ":" preloaded)
    set(ULPSCOPE_PYTHON_ENVIRONMENT "LD_PRELOAD=${preloaded}" "ASAN_OPTIONS=detect_leaks=0")
  endif()
else()
  # A part of a library that a program does not call is left out of it.
  target_compile_options(ulpscope_flags INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-ffunction-sections;-fdata-sections>)
  target_link_options(ulpscope_flags INTERFACE $<$<CONFIG:Release>:LINKER:--gc-sections>)
endif()

# What most sources include, of the standard library and of fmt. No header of ours is among it, so that a change of one recompiles
# what includes it and nothing else. No source relies on it: each includes what it uses.
set(ULPSCOPE_PRECOMPILED_HEADERS
  <algorithm> <array> <bit> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map> <memory> <numeric> <optional> <set>
  <span> <string> <string_view> <tuple> <unordered_map> <utility> <vector> <fmt/format.h>)

# ulpscope_precompiled(KIND [COMPILE_FAST] [OF_PROGRAMS] [HEADERS ...] [LINK ...]): the library of a kind, which is empty but for the headers
# above and HEADERS, precompiled for what is compiled fast, for sources of programs.
function(ulpscope_precompiled kind)
  cmake_parse_arguments(ARG "COMPILE_FAST;OF_PROGRAMS" "" "HEADERS;LINK" ${ARGN})
  set(headers ${ULPSCOPE_PRECOMPILED_HEADERS} ${ARG_HEADERS})
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
  set(source ${PROJECT_BINARY_DIR}/precompiled_${kind}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(ulpscope_precompiled_${kind} OBJECT ${source})
  target_link_libraries(ulpscope_precompiled_${kind} PRIVATE ${ARG_LINK} ulpscope_flags)
  target_precompile_headers(ulpscope_precompiled_${kind} PRIVATE ${headers})
  target_compile_options(ulpscope_precompiled_${kind} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  if(ARG_COMPILE_FAST)
    ulpscope_compile_fast(ulpscope_precompiled_${kind})
  endif()
  if(ARG_OF_PROGRAMS)
    set_target_properties(ulpscope_precompiled_${kind} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(ulpscope_precompiled_${kind} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})
  endif()
endfunction()

# ulpscope_precompile_headers(TARGET KIND): the target uses the headers of a kind. Targets of one kind are compiled with the same flags,
# but for -W, -I and names that no precompiled header asks for. GCC says where they are not, but for -O: that of the precompiled header
# would hold for what uses it. It needs -fpch-preprocess for ccache to see the header in what it hashes.
function(ulpscope_precompile_headers target kind)
  target_precompile_headers(${target} REUSE_FROM ulpscope_precompiled_${kind})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()

# For code whose running time is nothing next to the time it takes to compile.
function(ulpscope_compile_fast target)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:${ULPSCOPE_COMPILE_FAST_OPTION}>)
endfunction()

# Sources of a target are compiled, `count` at a time, as one, so that what they include, and the templates that they share, are compiled once
# for all of them. Their unnamed namespaces are then one, too: a name that two of them define is an error of the compiler.
function(ulpscope_compile_together target count)
  if(ULPSCOPE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${count})
    # GCC takes what the one source includes for headers, where a class with a member of an unnamed namespace would be wrong.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# ulpscope_library(NAME [SOURCES ...] [COMPILE_FAST ...] [APART ...] [HEADERS ...] [PUBLIC ...] [PRIVATE ...]): static library
# ulpscope_NAME, alias ulpscope::NAME. SOURCES are compiled to run fast and COMPILE_FAST to compile fast; APART are sources that are compiled to
# run fast, each by itself, as Highway's are, which include themselves once for each instruction set. PUBLIC and PRIVATE are what it links;
# HEADERS are its public headers, which are installed.
function(ulpscope_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;COMPILE_FAST;APART;HEADERS;PUBLIC;PRIVATE" ${ARGN})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(include_folders $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set(objects "")
  if(ARG_COMPILE_FAST)
    add_library(ulpscope_${name}_fast OBJECT ${ARG_COMPILE_FAST})
    target_include_directories(ulpscope_${name}_fast PRIVATE ${include_folders})
    set(links ${ARG_PUBLIC} ${ARG_PRIVATE})
    list(REMOVE_ITEM links OpenMP::OpenMP_CXX)  # a loop that is worth threads is worth a fast one
    target_link_libraries(ulpscope_${name}_fast PRIVATE ${links} ulpscope_flags)
    ulpscope_compile_fast(ulpscope_${name}_fast)
    ulpscope_compile_together(ulpscope_${name}_fast 16)
    ulpscope_precompile_headers(ulpscope_${name}_fast fast)
    set(objects $<TARGET_OBJECTS:ulpscope_${name}_fast>)
  endif()
  add_library(ulpscope_${name} STATIC ${ARG_SOURCES} ${ARG_APART} ${ARG_HEADERS} ${objects})
  add_library(ulpscope::${name} ALIAS ulpscope_${name})
  set_target_properties(ulpscope_${name} PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX)
  target_compile_features(ulpscope_${name} PUBLIC cxx_std_20)
  target_include_directories(ulpscope_${name} PUBLIC ${include_folders})
  target_link_libraries(ulpscope_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} $<BUILD_INTERFACE:ulpscope_flags>)
  ulpscope_compile_together(ulpscope_${name} 16)
  if("OpenMP::OpenMP_CXX" IN_LIST ARG_PRIVATE)
    ulpscope_precompile_headers(ulpscope_${name} openmp)
  elseif(ARG_SOURCES OR ARG_APART)
    ulpscope_precompile_headers(ulpscope_${name} library)
  endif()
  set_property(GLOBAL APPEND PROPERTY ULPSCOPE_LIBRARIES ulpscope_${name})
  foreach(header IN LISTS ARG_HEADERS)
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    cmake_path(GET header PARENT_PATH subfolder)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ulpscope/${folder}/${subfolder} COMPONENT ${name})
  endforeach()
endfunction()

# ulpscope_definitions(NAME DEFINITION ...): what all sources of ulpscope_NAME are compiled with.
function(ulpscope_definitions name)
  foreach(target IN ITEMS ulpscope_${name} ulpscope_${name}_fast)
    if(TARGET ${target})
      target_compile_definitions(${target} PRIVATE ${ARGN})
    endif()
  endforeach()
endfunction()

# ulpscope_test_parts(NAME LABEL PARTS [OPTIONS ...] COMMAND ...): the tests of a program, in so many processes, each an entry of ctest.
# OPTIONS are those of scripts/test_program.py, which runs them.
function(ulpscope_test_parts name label parts)
  cmake_parse_arguments(ARG "" "" "OPTIONS;COMMAND" ${ARGN})
  foreach(part RANGE 1 ${parts})
    set(test ${name}_${part})
    add_test(NAME ${test} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/test_program.py ${ARG_OPTIONS} --part ${part}/${parts}
      --results ${PROJECT_BINARY_DIR}/test_results/${test}.json -- ${ARG_COMMAND})
    set_tests_properties(${test} PROPERTIES LABELS ${label} COST 100 TIMEOUT 7200)
  endforeach()
endfunction()

# ulpscope_test(NAME [PARTS N] SOURCES ... LINK ...): one GoogleTest program for one folder, whose tests run in N processes, so that each
# takes seconds and no core waits long for another. Tests whose suite or name contains "Slow" carry the label slow, and only
# `./dev test --all` runs them.
function(ulpscope_test name)
  cmake_parse_arguments(ARG "" "PARTS" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_PARTS)
    set(ARG_PARTS 1)
  endif()
  add_executable(${name}_tests ${ARG_SOURCES})
  target_link_libraries(${name}_tests PRIVATE ulpscope_test_support ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main ulpscope_flags)
  target_include_directories(${name}_tests PRIVATE ${PROJECT_BINARY_DIR}/test_include)
  ulpscope_compile_fast(${name}_tests)
  ulpscope_compile_together(${name}_tests 8)
  target_link_libraries(${name}_tests PRIVATE nlohmann_json::nlohmann_json)
  ulpscope_precompile_headers(${name}_tests test)
  ulpscope_test_parts(${name}.part fast ${ARG_PARTS} OPTIONS --prefix ${name}. --fast COMMAND $<TARGET_FILE:${name}_tests>)
  ulpscope_test_parts(${name}.slow slow ${ARG_PARTS} OPTIONS --prefix ${name}. --slow COMMAND $<TARGET_FILE:${name}_tests>)
endfunction()

# ulpscope_test_deferred(NAME): all tests of NAME_tests again, as one, with every CPU backend made one that runs behind the host
# (tests/support/deferred_backend.h). The linker puts it in the place of make_cpu_backend.
function(ulpscope_test_deferred name)
  target_link_libraries(${name}_tests PRIVATE ulpscope_deferred_backend)
  target_link_options(${name}_tests PRIVATE LINKER:--wrap=_ZN8ulpscope16make_cpu_backendERKNS_10CpuOptionsE)
  add_test(NAME ${name}.deferred COMMAND ${name}_tests --gtest_filter=-*Slow*:${ARGN})
  set_tests_properties(${name}.deferred PROPERTIES LABELS fast COST 1000 ENVIRONMENT ULPSCOPE_TEST_DEFERRED=1)
endfunction()

# ulpscope_test_ptx(NAME LABEL ARCHITECTURE FILTER): tests of NAME_tests again, as one, with every emulated device made one that runs what
# nvcc made of the kernels for that architecture (tests/ptx).
function(ulpscope_test_ptx name label architecture filter)
  if(ULPSCOPE_CHECKS_DEVICE_CODE)
    set(test ${name}.ptx_${architecture}_${label})
    add_test(NAME ${test} COMMAND ${name}_tests --gtest_filter=${filter})
    set_tests_properties(${test} PROPERTIES LABELS ${label} COST 1000 TIMEOUT 3600 FIXTURES_REQUIRED ptx_${architecture}
      FAIL_REGULAR_EXPRESSION "Running 0 tests"
      ENVIRONMENT ULPSCOPE_TEST_PTX=${ULPSCOPE_DEVICE_CODE_FOLDER}/${architecture}/cuda_backend.ptx)
  endif()
endfunction()

# ulpscope_runs_ptx(NAME): what ulpscope_test_ptx needs of NAME_tests. The linker puts it in the place of make_emulated_device_backend.
function(ulpscope_runs_ptx name)
  target_link_libraries(${name}_tests PRIVATE ulpscope_ptx_backend ulpscope_ptx)
  target_link_options(${name}_tests PRIVATE
    LINKER:--wrap=_ZN8ulpscope28make_emulated_device_backendEmSt17basic_string_viewIcSt11char_traitsIcEE)
endfunction()

# ulpscope_benchmark(NAME SOURCES ... LINK ...): the program bench/NAME_bench, which `./dev bench NAME` runs.
function(ulpscope_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name}_bench ${ARG_SOURCES})
  target_link_libraries(${name}_bench PRIVATE ${ARG_LINK} ulpscope_flags)
  target_include_directories(${name}_bench PRIVATE ${PROJECT_BINARY_DIR}/test_include)
endfunction()

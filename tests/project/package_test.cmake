# Installs ulpscope into a scratch folder and builds a consumer of it outside of the tree. COMPONENT emulation: configures, builds
# and installs emulation alone, on a machine that seems to have none of the other libraries. COMPONENT emulation_of_all: installs that
# component of what was built, and compiles its headers with warnings as errors. COMPONENT all: installs what was built.
# Given: COMPONENT, SOURCE, BUILD, SCRATCH, COMPILER, BUILD_TYPE, FLAGS.

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nexits with ${status}\n${output}")
  endif()
endfunction()

set(absent "")
if(COMPONENT MATCHES "^emulation")
  foreach(package IN ITEMS OneDNN Libcsv OpenMP PkgConfig HDF5 tomlplusplus ZLIB nlohmann_json CLI11 GTest benchmark Python3)
    list(APPEND absent -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
  endforeach()
endif()

file(REMOVE_RECURSE ${SCRATCH})
set(prefix ${SCRATCH}/prefix)
set(common -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=${BUILD_TYPE} ${absent})
if(COMPONENT STREQUAL emulation)
  run(${CMAKE_COMMAND} -S ${SOURCE} -B ${SCRATCH}/build ${common} -DULPSCOPE_EMULATION_ONLY=ON)
  run(${CMAKE_COMMAND} --build ${SCRATCH}/build --parallel 2)
  run(${CMAKE_COMMAND} --install ${SCRATCH}/build --prefix ${prefix})
elseif(COMPONENT STREQUAL emulation_of_all)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --component emulation)
else()
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
endif()

# The consumer must not find headers or libraries in the source and build trees, so the installed package must not name them.
file(GLOB_RECURSE exported ${prefix}/lib/*/cmake/ulpscope/*.cmake ${prefix}/lib/cmake/ulpscope/*.cmake)
foreach(file IN LISTS exported)
  file(READ ${file} text)
  # The build tree lies in it.
  string(FIND "${text}" "${SOURCE}/" place)
  if(NOT place EQUAL -1)
    message(FATAL_ERROR "${file} names the source or the build tree")
  endif()
endforeach()

set(example ${SOURCE}/examples/accumulators)
set(consumer ${SOURCE}/tests/project/consumer_all)
set(program consumer)
if(COMPONENT MATCHES "^emulation")
  set(consumer ${example})
  set(program accumulators)
endif()
file(COPY ${consumer}/ DESTINATION ${SCRATCH}/consumer)
if(COMPONENT STREQUAL emulation_of_all)
  file(COPY ${SOURCE}/tests/project/consumer_emulation/ DESTINATION ${SCRATCH}/consumer)
endif()
if(NOT COMPONENT STREQUAL emulation)
  # The installed headers go together in one source.
  file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/ulpscope/*.h)
  list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>\n")
  list(JOIN headers "" includes)
  file(WRITE ${SCRATCH}/consumer/all_headers.cpp "${includes}")
endif()
run(${CMAKE_COMMAND} -S ${SCRATCH}/consumer -B ${SCRATCH}/consumer/build ${common} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${SCRATCH}/consumer/build)
execute_process(COMMAND ${SCRATCH}/consumer/build/${program} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${program} exits with ${status}\n${output}")
endif()
if(COMPONENT MATCHES "^emulation")
  # Terms of 2^-14 are below the last place of 1 in FP16, and below the 13 bits that Hopper's FP8 sums keep.
  if(NOT output MATCHES "fp16, one after the other: 1\n.*fp32, one after the other: 1.24993896\n.*exact: 1.24993896\n.*wgmma: 1\n")
    message(FATAL_ERROR "the example prints\n${output}")
  endif()
  # What is not installed must be refused by name.
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SCRATCH}/consumer -B ${SCRATCH}/consumer/refused ${common}
    -DCMAKE_PREFIX_PATH=${prefix} -DEXTRA_COMPONENT=core RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0 OR NOT output MATCHES "no component 'core'")
    message(FATAL_ERROR "a component that is not installed was not refused by name:\n${output}")
  endif()
else()
  run(${prefix}/bin/ulpscope --help)
  foreach(file IN ITEMS man/man1/ulpscope.1 man/man1/ulpscope-train.1 bash-completion/completions/ulpscope zsh/site-functions/_ulpscope
      fish/vendor_completions.d/ulpscope.fish)
    if(NOT EXISTS ${prefix}/share/${file})
      message(FATAL_ERROR "share/${file} was not installed")
    endif()
  endforeach()
  # Traces, their analysis and recording need nothing of the engine's libraries.
  foreach(component trace recorder analyzers)
    run(${CMAKE_COMMAND} -S ${example} -B ${SCRATCH}/${component} ${common}
      -DCMAKE_PREFIX_PATH=${prefix} -DEXTRA_COMPONENT=${component} -DCMAKE_DISABLE_FIND_PACKAGE_OneDNN=ON
      -DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON -DCMAKE_DISABLE_FIND_PACKAGE_tomlplusplus=ON)
  endforeach()
endif()

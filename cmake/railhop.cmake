# Project-wide compile rules and the three helper functions that every CMakeLists.txt uses.

add_library(railhop_options INTERFACE)
target_compile_options(railhop_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual
  -Wformat=2 -Werror -fno-omit-frame-pointer -fvisibility=hidden)
# g++ 12 sees overlapping copies in std::string's operator+ that are not there (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(railhop_options INTERFACE -Wno-restrict)
endif()
target_include_directories(railhop_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_features(railhop_options INTERFACE cxx_std_20)  # of applications as well
if(RAILHOP_SANITIZER)
  target_compile_options(railhop_options INTERFACE -fsanitize=${RAILHOP_SANITIZER} -fno-sanitize-recover=all)
  target_link_options(railhop_options INTERFACE -fsanitize=${RAILHOP_SANITIZER})
endif()
if(RAILHOP_FUZZ)
  target_compile_options(railhop_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(RAILHOP_FAULT_POINTS)
  target_compile_definitions(railhop_options INTERFACE RAILHOP_FAULT_POINTS=1)
endif()

# railhop_library(NAME SOURCES... ) : a static library with the project's rules.
function(railhop_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC railhop_options)
endfunction()

# railhop_test(FILE [SERIAL] LIBS...) : tests/x/foo_test.cc becomes the executable x_foo_test; each of
# its cases becomes a ctest of its own, labelled with the folder's name. SERIAL: no other test runs
# beside it (it needs the cores for itself).
function(railhop_test file)
  cmake_parse_arguments(arg "SERIAL" "" "" ${ARGN})
  file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  string(REGEX REPLACE "\\.cc$" "" name ${relative})
  string(REPLACE "/" "_" name ${name})
  get_filename_component(folder ${relative} DIRECTORY)
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE ${arg_UNPARSED_ARGUMENTS} railhop_options
    GTest::gmock GTest::gtest_main)
  set(properties LABELS "${folder}" TIMEOUT 300)
  if(arg_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  # AddressSanitizer's dlopen does not look where the program's own run path leads.
  set(stand_ins)
  foreach(library CUDA VERBS)
    string(TOLOWER railhop_fake_${library} target)
    if(${target} IN_LIST arg_UNPARSED_ARGUMENTS)
      string(APPEND stand_ins ":${RAILHOP_FAKE_${library}_FOLDER}")
    endif()
  endforeach()
  if(stand_ins)
    string(SUBSTRING "${stand_ins}" 1 -1 stand_ins)
    list(APPEND properties ENVIRONMENT "LD_LIBRARY_PATH=${stand_ins}")
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTIES ${properties})
endfunction()

# Every header must compile alone and twice: one generated source per header. The target
# headers_alone is part of what ./dev test builds, and of no other build.
function(railhop_check_headers)
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
    runtime/*.h transport/*.h actors/*.h bindings/*.h tools/*.h tests/*.h)
  set(sources)
  foreach(header IN LISTS headers)
    string(REPLACE "/" "_" flat ${header})
    set(source ${PROJECT_BINARY_DIR}/headers_alone/${flat}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(headers_alone OBJECT EXCLUDE_FROM_ALL ${sources})
  target_compile_options(headers_alone PRIVATE -O0 -g0)
  target_link_libraries(headers_alone PRIVATE railhop_options railhop_actors GTest::gmock
    pybind11::module)
endfunction()

# Has imported libraries linked from their archives. fmt has none in Debian: its headers alone do.
# libcurl's does not link alone; only metadata services need it, and their clients are dropped.
function(railhop_prefer_archives)
  get_property(targets DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(NOT type STREQUAL "SHARED_LIBRARY")
      continue()
    endif()
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    foreach(configuration IN LISTS configurations)
      get_target_property(shared ${target} IMPORTED_LOCATION_${configuration})
      string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${shared}")
      if(EXISTS "${archive}")
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive})
      endif()
    endforeach()
  endforeach()
  get_target_property(libevent PkgConfig::libevent INTERFACE_LINK_LIBRARIES)
  string(REGEX REPLACE "\\.so" ".a" libevent "${libevent}")
  set_target_properties(PkgConfig::libevent PROPERTIES INTERFACE_LINK_LIBRARIES "${libevent}")
  target_compile_definitions(railhop_options INTERFACE FMT_HEADER_ONLY)
  target_link_options(railhop_options INTERFACE
    -static-libstdc++ -static-libgcc -Wl,--as-needed,--gc-sections)
endfunction()

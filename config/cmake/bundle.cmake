# For machines that have none of the libraries: as release, linked statically but for glibc. Programs
# are stripped, so nothing is compiled for a debugger.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -DNDEBUG" CACHE STRING "")
include(${CMAKE_CURRENT_LIST_DIR}/release.cmake)
set(RAILHOP_STATIC ON CACHE BOOL "")
set(Protobuf_USE_STATIC_LIBS ON CACHE BOOL "")
# What no program of the bundle uses is dropped by the linker, and what that needs with it.
set(CMAKE_CXX_FLAGS "-ffunction-sections -fdata-sections" CACHE STRING "")

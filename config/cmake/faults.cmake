# The named points of fault tests are compiled in (runtime/fault_point.h). Never shipped.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1" CACHE STRING "")
set(RAILHOP_FAULT_POINTS ON CACHE BOOL "")

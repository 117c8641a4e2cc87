# Thread sanitizer, with assertions. runtime/fence.h swaps atomic fences, which it does not model.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1" CACHE STRING "")
set(RAILHOP_SANITIZER "thread" CACHE STRING "")

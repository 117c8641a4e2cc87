# Address and undefined-behaviour sanitizers, with assertions.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1" CACHE STRING "")
set(RAILHOP_SANITIZER "address,undefined" CACHE STRING "")

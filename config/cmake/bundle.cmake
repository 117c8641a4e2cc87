# For machines that have none of the libraries: as release, linked statically but for glibc.
include(${CMAKE_CURRENT_LIST_DIR}/release.cmake)
set(RAILHOP_STATIC ON CACHE BOOL "")

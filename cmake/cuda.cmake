# nvcc is wanted for the kernels only: without it the library is the same but for them.
find_program(RAILHOP_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin
  DOC "CUDA compiler for the gather kernel; empty: none")

# railhop_fatbin(OUTPUT SOURCE): compiles a .cu file for every GPU from sm_75 on that this nvcc knows
# up to sm_100, and PTX of the newest for later ones.
function(railhop_fatbin output source)
  execute_process(COMMAND ${RAILHOP_NVCC} --list-gpu-code OUTPUT_VARIABLE known
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" known "${known}")
  set(targets)
  foreach(arch 75 80 86 89 90 100)
    if("sm_${arch}" IN_LIST known)
      list(APPEND targets -gencode arch=compute_${arch},code=sm_${arch})
      set(newest ${arch})
    endif()
  endforeach()
  add_custom_command(OUTPUT ${output}
    COMMAND ${RAILHOP_NVCC} -fatbin -std=c++17 -I${PROJECT_SOURCE_DIR} ${targets}
      -gencode arch=compute_${newest},code=compute_${newest}
      -MD -MF ${output}.d -MT ${output} -o ${output} ${source}
    DEPENDS ${source} DEPFILE ${output}.d VERBATIM
    COMMENT "Compiling GPU kernels of ${source}")
endfunction()

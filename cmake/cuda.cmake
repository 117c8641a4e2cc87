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

# railhop_kernel_image(TARGET KERNEL.cu FUNCTION): gives TARGET an object file with the kernels of
# that file, and the FUNCTION that its header KERNEL.h declares, which tells where they are; nullptr
# without nvcc.
function(railhop_kernel_image target source function)
  get_filename_component(stem ${source} NAME_WE)
  file(RELATIVE_PATH header ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  string(REGEX REPLACE "\\.cu$" ".h" header ${header})
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${stem}_image.cc)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/kernel_image.cc.in ${image} @ONLY)
  target_sources(${target} PRIVATE ${image})
  if(RAILHOP_NVCC)
    set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${stem}.fatbin)
    railhop_fatbin(${fatbin} ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    add_custom_target(railhop_${stem}_fatbin DEPENDS ${fatbin})
    add_dependencies(${target} railhop_${stem}_fatbin)
    set_source_files_properties(${image} TARGET_DIRECTORY ${target} PROPERTIES
      COMPILE_DEFINITIONS RAILHOP_FATBIN="${fatbin}" OBJECT_DEPENDS ${fatbin})
  endif()
endfunction()

# Kernels of CUDA: one .cu becomes one object, by nvcc alone, over raw pointers and a stream. CUDA's runtime is linked
# statically, so that a plugin with kernels loads on a machine without CUDA. Without nvcc everything is built for the
# CPU, and what names "cuda" among its devices does not.

set(MORTISE_CUDA AUTO CACHE STRING "Kernels of CUDA: ON, OFF or AUTO, where nvcc is found")
set_property(CACHE MORTISE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MORTISE_CUDA_ARCHITECTURES "80 90" CACHE STRING
  "Compute capabilities with code of their own; the last one's PTX serves newer ones")

set(MORTISE_HAS_CUDA 0)
if(NOT MORTISE_CUDA STREQUAL "OFF" AND NOT MORTISE_SANITIZE)
  find_program(MORTISE_NVCC nvcc HINTS "${PROJECT_SOURCE_DIR}/.deps/cuda/bin" /usr/local/cuda/bin)
  if(MORTISE_NVCC)
    file(REAL_PATH "${MORTISE_NVCC}" mortise_cuda_root)
    cmake_path(GET mortise_cuda_root PARENT_PATH mortise_cuda_root)
    cmake_path(GET mortise_cuda_root PARENT_PATH mortise_cuda_root)
    find_library(MORTISE_CUDART libcudart_static.a HINTS "${mortise_cuda_root}" PATH_SUFFIXES lib64 lib
      targets/x86_64-linux/lib)
  endif()
  if(MORTISE_NVCC AND MORTISE_CUDART)
    set(MORTISE_HAS_CUDA 1)
  elseif(MORTISE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "no nvcc, or no libcudart_static.a beside it\n  fix: make setup CUDA=1, or -DMORTISE_CUDA=OFF")
  endif()
endif()
if(MORTISE_TORCH)
  # For what only LibTorch's classes for CUDA can do: native plugins. CUDA's headers and runtime come with LibTorch.
  cmake_path(GET torch_dir PARENT_PATH mortise_beside_torch)
  find_path(MORTISE_CUDA_HEADERS cuda_runtime_api.h HINTS "${mortise_beside_torch}/nvidia/cu13/include"
    "${mortise_cuda_root}/include")
  find_library(MORTISE_CUDART_SHARED NAMES libcudart.so.13 HINTS "${mortise_beside_torch}/nvidia/cu13/lib"
    "${mortise_cuda_root}/lib64")
  foreach(half c10_cuda torch_cuda)
    add_library(mortise::${half} SHARED IMPORTED)
    set_target_properties(mortise::${half} PROPERTIES IMPORTED_LOCATION "${torch_dir}/lib/lib${half}.so")
  endforeach()
  target_include_directories(mortise::c10_cuda SYSTEM INTERFACE "${MORTISE_CUDA_HEADERS}")
  target_link_libraries(mortise::torch_cuda INTERFACE mortise::c10_cuda mortise::torch_cpu "${MORTISE_CUDART_SHARED}")
endif()
if(MORTISE_HAS_CUDA)
  message(STATUS "kernels of CUDA: ${MORTISE_NVCC}, for ${MORTISE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "kernels of CUDA: none are built; every plugin serves the CPU")
endif()

set(mortise_nvcc_options -std=c++17 -O3 --fmad=false -Xcompiler=-fPIC,-fvisibility=hidden)
separate_arguments(mortise_architectures UNIX_COMMAND "${MORTISE_CUDA_ARCHITECTURES}")
foreach(number IN LISTS mortise_architectures)
  list(APPEND mortise_nvcc_options "-gencode=arch=compute_${number},code=sm_${number}")
endforeach()
list(GET mortise_architectures -1 number)
list(APPEND mortise_nvcc_options "-gencode=arch=compute_${number},code=compute_${number}")

# mortise_cuda_kernel(TARGET file.cu…): into the library TARGET, if kernels of CUDA are built.
function(mortise_cuda_kernel target)
  if(NOT MORTISE_HAS_CUDA)
    return()
  endif()
  foreach(file IN LISTS ARGN)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${file}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${MORTISE_NVCC}" ${mortise_nvcc_options} -I "${PROJECT_SOURCE_DIR}"
              -I "${PROJECT_SOURCE_DIR}/sdk/include" -MD -MF "${object}.d" -c "${CMAKE_CURRENT_SOURCE_DIR}/${file}"
              -o "${object}"
      DEPENDS "${file}" DEPFILE "${object}.d" COMMENT "Building CUDA object ${file}" VERBATIM)
    target_sources(${target} PRIVATE "${object}")
  endforeach()
  target_link_libraries(${target} PRIVATE "${MORTISE_CUDART}" ${CMAKE_DL_LIBS} rt Threads::Threads)
endfunction()

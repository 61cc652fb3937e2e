# Libraries of others, all header-only except LibTorch, the archives of OpenSSL and libcsv and, for tests, GoogleTest.
# scripts/setup.sh puts them in place.

find_package(Threads REQUIRED)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)  # SHA-256, nothing else

# Header-only: no shared library but LibTorch, glibc and libstdc++ may be needed at run time.
add_library(mortise_headers INTERFACE)
target_compile_definitions(mortise_headers INTERFACE FMT_HEADER_ONLY=1 TOML_HEADER_ONLY=1)
target_link_libraries(mortise_headers INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

# libcsv has no package file. Its static archive: a plugin needs no shared library but glibc.
find_path(MORTISE_CSV_INCLUDE csv.h)
find_library(MORTISE_CSV_LIBRARY libcsv.a)
if(NOT MORTISE_CSV_INCLUDE OR NOT MORTISE_CSV_LIBRARY)
  message(FATAL_ERROR "no libcsv\n  fix: scripts/setup.sh, or apt-get install libcsv-dev")
endif()
add_library(mortise::csv STATIC IMPORTED)
set_target_properties(mortise::csv PROPERTIES IMPORTED_LOCATION "${MORTISE_CSV_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${MORTISE_CSV_INCLUDE}")

if(MORTISE_TESTS)
  find_package(GTest REQUIRED)
endif()

# LibTorch by hand. find_package(Torch) links its CUDA half into everything, and the host must start on a machine
# without a GPU.
if(MORTISE_TORCH)
  set(torch_dir "${MORTISE_TORCH_DIR}")
  if(NOT torch_dir)
    file(REAL_PATH "${PROJECT_SOURCE_DIR}/.deps/torch" torch_dir)
  endif()
  if(NOT EXISTS "${torch_dir}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "no LibTorch in `${torch_dir}`\n"
      "  fix: scripts/setup.sh, or -DMORTISE_TORCH_DIR=<…/site-packages/torch> of LibTorch 2.11")
  endif()
  add_library(mortise::c10 SHARED IMPORTED)
  add_library(mortise::torch_cpu SHARED IMPORTED)
  set_target_properties(mortise::c10 PROPERTIES IMPORTED_LOCATION "${torch_dir}/lib/libc10.so")
  set_target_properties(mortise::torch_cpu PROPERTIES IMPORTED_LOCATION "${torch_dir}/lib/libtorch_cpu.so")
  target_include_directories(mortise::c10 SYSTEM INTERFACE "${torch_dir}/include")
  target_include_directories(mortise::torch_cpu SYSTEM INTERFACE "${torch_dir}/include"
    "${torch_dir}/include/torch/csrc/api/include")
  target_link_libraries(mortise::torch_cpu INTERFACE mortise::c10)
  # Its own shared libraries (libcudart, libcupti, libgomp) are found at run time through its DT_RPATH; the linker need
  # not follow them.
  target_link_options(mortise::c10 INTERFACE -Wl,--allow-shlib-undefined)
endif()

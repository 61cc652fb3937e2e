# Compiler flags, linker, ccache. Everything here holds for the whole tree.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()
foreach(lang C CXX)
  set(CMAKE_${lang}_FLAGS_RELEASE "-O2 -g0 -DNDEBUG")
  set(CMAKE_${lang}_FLAGS_RELWITHDEBINFO "-O2 -g1") # asserts stay on
  set(CMAKE_${lang}_FLAGS_DEBUG "-O0 -g")
endforeach()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wundef
                    # tables of functions are written with designated initialisers and grow at their end
                    -Wno-missing-field-initializers
                    "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")
if(MORTISE_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 and 13 report these for correct code of their own library once it is inlined, pages of it (GCC bugs 105651,
  # 105329, 107852).
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow
    -Wno-stringop-overread)
endif()

# Built anywhere, a file gives the same bytes: no path of this machine in __FILE__.
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")

if(MORTISE_SANITIZE)
  string(REPLACE "-O2" "-O1" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")
  string(REPLACE "-O2" "-O1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  add_compile_options(-fsanitize=${MORTISE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MORTISE_SANITIZE})
endif()

find_program(MORTISE_CCACHE ccache)
if(MORTISE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${MORTISE_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${MORTISE_CCACHE}")
endif()

include(CheckLinkerFlag)
check_linker_flag(CXX "-fuse-ld=mold" MORTISE_HAS_MOLD) # g++ before 12 does not know the word
if(MORTISE_HAS_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# One file with LibTorch's headers takes 1.0 to 1.4 GB to compile: two at a time, however many cores there are.
set_property(GLOBAL PROPERTY JOB_POOLS torch=2)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(MORTISE_PLUGIN_OUTPUT_DIR "${CMAKE_BINARY_DIR}/plugins")

# LibTorch finds its CUDA runtime library through its own DT_RPATH, and we find LibTorch in the same way, before
# LD_LIBRARY_PATH is asked.
add_link_options("$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,--disable-new-dtags>")

# What the folders of the tree are made with: mortise_room(), mortise_format(), mortise_kernel(), and, from the SDK,
# mortise_add_plugin().

# Folders take part as soon as they have a CMakeLists.txt.
macro(mortise_add_folder folder)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt")
    add_subdirectory("${PROJECT_SOURCE_DIR}/${folder}" "${PROJECT_BINARY_DIR}/cmake/${folder}")
  endif()
endmacro()

macro(mortise_add_folders pattern)
  file(GLOB mortise_folders CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
    "${PROJECT_SOURCE_DIR}/${pattern}/CMakeLists.txt")
  foreach(mortise_folder IN LISTS mortise_folders)
    get_filename_component(mortise_folder "${mortise_folder}" DIRECTORY)
    mortise_add_folder("${mortise_folder}")
  endforeach()
endmacro()

# The SDK as plugins in the tree see it: its headers, kernels/ under both spellings ("kernels/x/x.h" and "x/x.h") and
# the headers of formats/, never core/.
add_library(mortise_sdk INTERFACE)
add_library(Mortise::sdk ALIAS mortise_sdk)
target_include_directories(mortise_sdk INTERFACE "${PROJECT_SOURCE_DIR}/sdk/include")
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include")
file(CREATE_LINK "${PROJECT_SOURCE_DIR}/kernels" "${PROJECT_BINARY_DIR}/include/kernels" SYMBOLIC)
file(CREATE_LINK "${PROJECT_SOURCE_DIR}/formats" "${PROJECT_BINARY_DIR}/include/formats" SYMBOLIC)
add_library(mortise_kernel_headers INTERFACE)
target_include_directories(mortise_kernel_headers INTERFACE "${PROJECT_BINARY_DIR}/include"
  "${PROJECT_SOURCE_DIR}/kernels")

# The SDK as the host sees it: with the project root, so that files are named from there ("core/base/text.hpp").
add_library(mortise_tree INTERFACE)
target_include_directories(mortise_tree INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/sdk/include")
target_compile_definitions(mortise_tree INTERFACE MORTISE_VERSION="${PROJECT_VERSION}")

include("${PROJECT_SOURCE_DIR}/sdk/cmake/MortisePlugin.cmake")
include(MortiseCuda)

# mortise_test(NAME SOURCES file… [LINKS target…]): one executable of GoogleTest, run by ctest under its own name.
function(mortise_test name)
  if(NOT MORTISE_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  _mortise_refuse_unknown(mortise_test "${arg_UNPARSED_ARGUMENTS}")
  _mortise_missing(${name} ${arg_SOURCES})
  if(MISSING)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} mortise_tree mortise_headers GTest::gtest_main)
  # Of tests alone: a compiler cache would hold each file once for each folder of the tree.
  target_compile_definitions(${name} PRIVATE MORTISE_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             MORTISE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  _mortise_register_test(${name})
endfunction()

# mortise_room(NAME SOURCES file… [DEPENDS room…] [LINKS target…] [TESTS file…] [TEST_LINKS target…] [TORCH])
# core/NAME becomes the static library mortise_NAME; its tests become NAME_test.
function(mortise_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "" "SOURCES;DEPENDS;LINKS;TESTS;TEST_LINKS")
  _mortise_refuse_unknown(mortise_room "${arg_UNPARSED_ARGUMENTS}")
  if(arg_TORCH AND NOT MORTISE_TORCH)
    return()
  endif()
  set(target mortise_${name})
  _mortise_missing(${target} ${arg_SOURCES})
  if(MISSING)
    return()
  endif()
  list(TRANSFORM arg_DEPENDS PREPEND mortise_)
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} ${arg_DEPENDS} ${arg_LINKS} mortise_tree mortise_headers)
  if(arg_TORCH)
    target_link_libraries(${target} ${scope} mortise::torch_cpu)
    set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE torch)
  endif()
  if(arg_TESTS AND MORTISE_TESTS)
    mortise_test(${name}_test SOURCES ${arg_TESTS} LINKS ${target} ${arg_TEST_LINKS})
    if(arg_TORCH AND TARGET ${name}_test)
      set_target_properties(${name}_test PROPERTIES JOB_POOL_COMPILE torch)
    endif()
  endif()
endfunction()

# mortise_format(NAME SOURCES file… [LINKS target…] [TESTS file…] [TEST_LINKS target…]): formats/NAME becomes
# mortise_format_NAME, for the core and for plugins.
function(mortise_format name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS;TESTS;TEST_LINKS")
  _mortise_refuse_unknown(mortise_format "${arg_UNPARSED_ARGUMENTS}")
  set(target mortise_format_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  target_link_libraries(${target} PUBLIC mortise_headers ${arg_LINKS})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
  if(arg_TESTS AND MORTISE_TESTS)
    mortise_test(format_${name}_test SOURCES ${arg_TESTS} LINKS ${target} ${arg_TEST_LINKS})
  endif()
endfunction()

# mortise_kernel(NAME SOURCES file… [TESTS file…] [CUDA file.cu… [CUDA_TESTS file…]]): kernels/NAME becomes a static
# library of plain functions over raw pointers. No LibTorch. The tests of what is for CUDA run on a device that the CPU
# stands in for (mortise/testing/emulated.hpp), on every machine.
function(mortise_kernel name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;TESTS;LINKS;TEST_LINKS;CUDA;CUDA_TESTS")
  _mortise_refuse_unknown(mortise_kernel "${arg_UNPARSED_ARGUMENTS}")
  set(target mortise_kernel_${name})
  _mortise_missing(${target} ${arg_SOURCES})
  if(MISSING)
    return()
  endif()
  add_library(${target} STATIC ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)  # SOURCES may be a header, where all is for CUDA
  target_link_libraries(${target} PUBLIC mortise_kernel_headers ${arg_LINKS})
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  if(arg_TESTS AND MORTISE_TESTS)
    mortise_test(kernel_${name}_test SOURCES ${arg_TESTS} LINKS ${target} ${arg_TEST_LINKS})
  endif()
  if(arg_CUDA)
    mortise_cuda_kernel(${target} ${arg_CUDA})
    target_compile_definitions(${target} PUBLIC MORTISE_HAS_CUDA=${MORTISE_HAS_CUDA})
    set_property(GLOBAL APPEND PROPERTY MORTISE_CUDA_KERNELS ${name})
  endif()
  if(arg_CUDA_TESTS AND MORTISE_TESTS)
    mortise_test(kernel_${name}_cuda_test SOURCES ${arg_CUDA_TESTS} ${arg_CUDA} LINKS ${target} ${arg_TEST_LINKS})
    set_source_files_properties(${arg_CUDA} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-O2;-ffp-contract=off")
  endif()
endfunction()

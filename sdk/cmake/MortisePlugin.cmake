# mortise_add_plugin(): one plugin, one shared library. The same file serves the tree itself and, installed, plugins
# made elsewhere.
#
#   mortise_add_plugin(family.name SOURCES file… [TESTS file…] [KERNELS name…] [LANGUAGE C|CXX] [LINKS library…]
#                      [TEST_LINKS target…] [NATIVE])
#
#   family.name.so    a module that exports `mortise_plugin_v0` and nothing else, with the C++ library kept private
#   family.name.toml  beside it, a copy of plugin.toml; the library carries the same text (MORTISE_PLUGIN_TOML is its
#                     path while compiling)
#   family.name_test  GoogleTest, where tests are built; MORTISE_PLUGIN_FILE is the library's path
#
# Kernels of CUDA are .cu files among SOURCES; KERNELS names folders of kernels/ in the tree itself. In a project that
# has not enabled CUDA they are left out, with a warning: MORTISE_HAS_CUDA is 0 then, else 1, and instead of
# plugin.toml's devices = ["cpu", "cuda"] the copy says ["cpu"]; a plugin.toml that does not say so is refused.
#
# Both files lie in MORTISE_PLUGIN_OUTPUT_DIR; without it, at the top of the build folder. `cmake --install` puts those
# of a plugin made elsewhere into PREFIX/lib/mortise/plugins. LINKS is for `m` and for what
# plugin.toml names in [links]. NATIVE: plugin.toml says `tier = "native"`; LibTorch's exceptions pass through it, so
# the C++ library is the one that LibTorch uses.

set(_mortise_plugin_dir "${CMAKE_CURRENT_LIST_DIR}")

function(_mortise_refuse_unknown function words)
  if(words)
    message(FATAL_ERROR "${function}: unknown words: ${words}")
  endif()
endfunction()

# Files that are listed but not written yet leave their target out, with a warning, so that one unfinished folder does
# not stop the others;
# the test `check_complete` fails as long as there is one. Sets MISSING in the caller.
function(_mortise_missing name)
  set(missing "")
  foreach(file IN LISTS ARGN)
    if(NOT EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${file}" AND NOT EXISTS "${file}")
      list(APPEND missing "${file}")
      # comes back when the file does
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}")
    endif()
  endforeach()
  if(missing AND NOT COMMAND mortise_room) # a plugin made elsewhere
    message(FATAL_ERROR "${name}: there is no ${missing}")
  elseif(missing)
    message(WARNING "${name} is left out: there is no ${missing}")
    set_property(GLOBAL APPEND PROPERTY MORTISE_MISSING "${name}: ${missing}")
  endif()
  set(MISSING "${missing}" PARENT_SCOPE)
endfunction()

function(_mortise_register_test name)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  # An executable whose tests were lost by the linker runs 0 of them and is content; we are not.
  set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "Running 0 tests" TIMEOUT 600 ENVIRONMENT
    "OMP_NUM_THREADS=1")
endfunction()

# Sets `toml` in the caller: without its kernels of CUDA a plugin serves the CPU alone, and its plugin.toml says so.
function(_mortise_without_cuda)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${toml}")
  file(READ "${toml}" text)
  string(REPLACE "\"cpu\", \"cuda\"" "\"cpu\"" text "${text}")
  set(toml "${CMAKE_CURRENT_BINARY_DIR}/plugin.toml")
  file(CONFIGURE OUTPUT "${toml}" CONTENT "${text}" @ONLY)
  set(toml "${toml}" PARENT_SCOPE)
endfunction()

function(mortise_add_plugin id)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NATIVE" "LANGUAGE" "SOURCES;TESTS;KERNELS;LINKS;TEST_LINKS")
  _mortise_refuse_unknown(mortise_add_plugin "${arg_UNPARSED_ARGUMENTS}")
  if(NOT id MATCHES "^[a-z][a-z0-9_]*\\.[a-z][a-z0-9_]*$")
    message(FATAL_ERROR "mortise_add_plugin(${id}): an id is family.name, in small letters, digits and _")
  endif()
  set(toml "${CMAKE_CURRENT_SOURCE_DIR}/plugin.toml")
  _mortise_missing(${id} ${arg_SOURCES} plugin.toml)
  if(MISSING)
    return()
  endif()
  if(arg_KERNELS AND NOT COMMAND mortise_kernel)
    message(FATAL_ERROR "${id}: KERNELS are folders of Mortise's own tree\n  fix: list your .cu files among SOURCES")
  endif()
  get_property(of_cuda GLOBAL PROPERTY MORTISE_CUDA_KERNELS)
  foreach(kernel IN LISTS arg_KERNELS)
    if(kernel IN_LIST of_cuda AND NOT MORTISE_HAS_CUDA)
      _mortise_without_cuda()
      break()
    endif()
  endforeach()
  set(of_cuda "${arg_SOURCES}")
  list(FILTER of_cuda INCLUDE REGEX "\\.cu$")
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(has_cuda 1)
  if(of_cuda AND NOT "CUDA" IN_LIST languages)
    set(has_cuda 0)
    list(REMOVE_ITEM arg_SOURCES ${of_cuda})
    set(fix "  fix: project(… LANGUAGES C CXX CUDA); the variable CUDACXX names an nvcc that is not on the PATH")
    file(READ "${toml}" text)
    if(NOT arg_SOURCES OR NOT text MATCHES "\"cpu\", \"cuda\"")
      message(FATAL_ERROR "${id} has nothing, or says nothing, for the CPU, and CUDA is not enabled\n${fix}")
    endif()
    message(WARNING "${id} serves the CPU alone, without ${of_cuda}: CUDA is not enabled\n${fix}")
    _mortise_without_cuda()
  endif()
  set(output "${MORTISE_PLUGIN_OUTPUT_DIR}")
  if(NOT output)
    set(output "${CMAKE_BINARY_DIR}")
  endif()

  # One place knows the version script: beside this file in the tree, in share/mortise when installed.
  set(map "${_mortise_plugin_dir}/plugin.map")
  if(MORTISE_PLUGIN_MAP)
    set(map "${MORTISE_PLUGIN_MAP}")
  endif()

  add_library(${id} MODULE ${arg_SOURCES})
  set_target_properties(${id} PROPERTIES
    PREFIX "" SUFFIX ".so" OUTPUT_NAME "${id}" LIBRARY_OUTPUT_DIRECTORY "${output}"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static
    SKIP_BUILD_RPATH ON INSTALL_RPATH "" LINK_DEPENDS "${map}")
  if(NOT CMAKE_CXX_STANDARD)
    set_target_properties(${id} PROPERTIES CXX_STANDARD 20 C_STANDARD 11)
  endif()
  if(NOT CMAKE_CUDA_STANDARD)
    set_target_properties(${id} PROPERTIES CUDA_STANDARD 20)
  endif()
  if(of_cuda)
    target_compile_definitions(${id} PRIVATE MORTISE_HAS_CUDA=${has_cuda})
  endif()
  if(arg_LANGUAGE)
    set_target_properties(${id} PROPERTIES LINKER_LANGUAGE ${arg_LANGUAGE})
  endif()
  target_link_libraries(${id} PRIVATE Mortise::sdk ${arg_LINKS})
  if(TARGET mortise_kernel_headers)
    target_link_libraries(${id} PRIVATE mortise_kernel_headers)
  endif()
  foreach(kernel IN LISTS arg_KERNELS)
    target_link_libraries(${id} PRIVATE mortise_kernel_${kernel})
  endforeach()
  target_compile_options(${id} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-ffunction-sections;-fdata-sections>"
                                       "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffunction-sections,-fdata-sections>")
  if(NOT arg_NATIVE)
    target_link_options(${id} PRIVATE -static-libgcc "$<$<LINK_LANGUAGE:CXX,CUDA>:-static-libstdc++>")
  endif()
  target_link_options(${id} PRIVATE -Wl,--gc-sections
    -Wl,--no-undefined
                                    "-Wl,--version-script=${map}" "$<$<CONFIG:Release>:-s>")
  if(MORTISE_SANITIZE) # a sanitizer's own symbols come from the executable
    set_property(TARGET ${id} PROPERTY LINK_OPTIONS -static-libgcc "-Wl,--version-script=${map}")
  endif()

  # The library carries plugin.toml: a change of that file compiles the sources again.
  target_compile_definitions(${id} PRIVATE "MORTISE_PLUGIN_TOML=\"${toml}\"")
  set_property(SOURCE ${arg_SOURCES} APPEND PROPERTY OBJECT_DEPENDS "${toml}")
  add_custom_command(OUTPUT "${output}/${id}.toml" COMMAND "${CMAKE_COMMAND}" -E copy "${toml}" "${output}/${id}.toml"
    DEPENDS "${toml}" VERBATIM)
  add_custom_target(${id}.manifest ALL DEPENDS "${output}/${id}.toml")
  add_dependencies(${id} ${id}.manifest)
  set_property(GLOBAL APPEND PROPERTY MORTISE_PLUGINS ${id})
  if(NOT COMMAND mortise_room) # a plugin made elsewhere
    install(TARGETS ${id} LIBRARY DESTINATION lib/mortise/plugins)
    install(FILES "${output}/${id}.toml" DESTINATION lib/mortise/plugins)
  endif()

  if(arg_TESTS AND TARGET GTest::gtest_main AND NOT MORTISE_TESTS STREQUAL "OFF")
    foreach(needed IN LISTS arg_TEST_LINKS) # without LibTorch the tests that want the host are left out
      if(needed MATCHES "^mortise_" AND NOT TARGET ${needed})
        return()
      endif()
    endforeach()
    _mortise_missing(${id}_test ${arg_TESTS})
    if(MISSING)
      return()
    endif()
    add_executable(${id}_test ${arg_TESTS})
    if(NOT CMAKE_CXX_STANDARD)
      set_target_properties(${id}_test PROPERTIES CXX_STANDARD 20)
    endif()
    target_link_libraries(${id}_test PRIVATE ${arg_TEST_LINKS} Mortise::sdk GTest::gtest_main ${CMAKE_DL_LIBS})
    if(TARGET mortise_tree)
      target_link_libraries(${id}_test PRIVATE mortise_tree mortise_headers)
    endif()
    target_compile_definitions(${id}_test PRIVATE "MORTISE_PLUGIN_FILE=\"$<TARGET_FILE:${id}>\"")
    add_dependencies(${id}_test ${id})
    _mortise_register_test(${id}_test)
  endif()
endfunction()

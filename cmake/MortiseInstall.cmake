# PREFIX/bin                      mortise, mortise-probe; mortise-bert-loop, a row of configs/bench/guides.toml
# PREFIX/lib/mortise              libmortise.so: the verbs that compute, loaded by bin/mortise when one is asked for
# PREFIX/lib/mortise/plugins      family.name.so and family.name.toml, one pair a plugin
# PREFIX/share/mortise            default.toml and the other manifests of configs/; plugin.map
# PREFIX/include/mortise          the SDK's headers
# PREFIX/lib/cmake/Mortise        find_package(Mortise) -> Mortise::sdk, mortise_add_plugin()
# PREFIX/lib/pkgconfig            mortise.pc: a C compiler alone can build a plugin
# PREFIX/share/doc/mortise        documents, pages and sources of plugins, sources of kernels, examples, in the tree's
#                                 folders: links hold
#
# The folder moves as a whole: the program finds everything from its own place. LibTorch is looked for where it was when
# this was built (an RPATH), and where that folder does not exist, wherever LD_LIBRARY_PATH says.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(program mortise mortise-probe)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION bin)
  endif()
endforeach()

if(TARGET mortise_library)
  install(TARGETS mortise_library LIBRARY DESTINATION lib/mortise)
  # By name: CMake's own way leaves out folders inside the source tree, where .deps is.
  set_target_properties(mortise_library PROPERTIES INSTALL_RPATH "${torch_dir}/lib")
endif()

if(TARGET bert_loop)
  install(TARGETS bert_loop RUNTIME DESTINATION bin)
  target_link_options(bert_loop PRIVATE LINKER:--disable-new-dtags)
  set_target_properties(bert_loop PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/mortise;${torch_dir}/lib")
endif()

foreach(plugin IN LISTS mortise_plugins)
  install(TARGETS ${plugin} LIBRARY DESTINATION lib/mortise/plugins)
  install(FILES "${MORTISE_PLUGIN_OUTPUT_DIR}/${plugin}.toml" DESTINATION lib/mortise/plugins)
endforeach()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/configs/" DESTINATION share/mortise FILES_MATCHING PATTERN "*.toml")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/sdk/include/mortise" DESTINATION include FILES_MATCHING PATTERN "*.h" PATTERN
  "*.hpp" PATTERN "*.def")
if(EXISTS "${PROJECT_SOURCE_DIR}/sdk/template")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/sdk/template" DESTINATION share/mortise)
endif()
install(FILES sdk/cmake/plugin.map DESTINATION share/mortise)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION share/doc/mortise FILES_MATCHING PATTERN "*.md")
# Plugins with their sources: what the guide names as examples.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/plugins" DESTINATION share/doc/mortise
        FILES_MATCHING PATTERN "*.md" PATTERN "plugin.toml" PATTERN "*.?pp" PATTERN "*_test.cpp" EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/kernels" DESTINATION share/doc/mortise
        FILES_MATCHING PATTERN "*.h" PATTERN "*.?pp" PATTERN "*.cu" PATTERN "*_test.*" EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION share/doc/mortise PATTERN build EXCLUDE)
install(FILES README.md CHANGELOG.md DESTINATION share/doc/mortise)

configure_package_config_file(sdk/cmake/MortiseConfig.cmake.in "${PROJECT_BINARY_DIR}/sdk/MortiseConfig.cmake"
                              INSTALL_DESTINATION lib/cmake/Mortise)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sdk/MortiseConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
configure_file(sdk/cmake/mortise.pc.in "${PROJECT_BINARY_DIR}/sdk/mortise.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/sdk/MortiseConfig.cmake" "${PROJECT_BINARY_DIR}/sdk/MortiseConfigVersion.cmake"
  sdk/cmake/MortisePlugin.cmake
        DESTINATION lib/cmake/Mortise)
install(FILES "${PROJECT_BINARY_DIR}/sdk/mortise.pc" DESTINATION lib/pkgconfig)

# The laws that are checked by a script, as tests: `ctest -R check`.

find_program(MORTISE_PYTHON python3 HINTS "${PROJECT_SOURCE_DIR}/.deps/venv/bin" REQUIRED)
if(NOT MORTISE_SANITIZE) # they read sources only: once is enough
  foreach(law includes names size)
    add_test(NAME check_core_${law} COMMAND "${MORTISE_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check_core.py" ${law})
  endforeach()
  foreach(law verbs lines codes links keys)
    add_test(NAME check_texts_${law} COMMAND "${MORTISE_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check_texts.py" ${law})
  endforeach()
  add_test(NAME check_abi_layout COMMAND "${MORTISE_PYTHON}" -B "${PROJECT_SOURCE_DIR}/scripts/abi_layout.py" --check
    "${CMAKE_C_COMPILER}")
  add_test(NAME check_users COMMAND "${MORTISE_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check_users.py")
  add_test(NAME check_format COMMAND "${PROJECT_SOURCE_DIR}/scripts/format.sh" --dry-run -Werror)
endif()
if(MORTISE_TORCH AND NOT MORTISE_SANITIZE) # elsewhere some are left out on purpose
  add_test(NAME check_tests COMMAND "${MORTISE_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check_tests.py"
    "${PROJECT_BINARY_DIR}" "${CMAKE_CTEST_COMMAND}")
endif()
foreach(kind plugins programs)
  add_test(NAME check_${kind} COMMAND "${MORTISE_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check_binaries.py" ${kind}
    "${PROJECT_BINARY_DIR}")
endforeach()
if(NOT MORTISE_SANITIZE)
  add_test(NAME check_sdk COMMAND "${PROJECT_SOURCE_DIR}/scripts/check_sdk.sh" "${PROJECT_BINARY_DIR}"
    "${CMAKE_COMMAND}")
endif()

# Folders whose files are not all there were left out with a warning, which is fine while one works and not afterwards.
get_property(missing GLOBAL PROPERTY MORTISE_MISSING)
list(JOIN missing " | " missing)
add_test(NAME check_complete COMMAND "${MORTISE_PYTHON}" -c
  "import sys; sys.exit('left out: ' + sys.argv[1] if sys.argv[1] else 0)" "${missing}")

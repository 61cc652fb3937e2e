# The laws that are checked by a script, as tests: `ctest -R check`.

find_program(MORTISE_PYTHON python3 HINTS "${PROJECT_SOURCE_DIR}/.deps/venv/bin" REQUIRED)
foreach(law includes names size)
  add_test(NAME check_core_${law} COMMAND "${MORTISE_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check_core.py" ${law})
endforeach()
foreach(kind plugins programs)
  add_test(NAME check_${kind} COMMAND "${MORTISE_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check_binaries.py" ${kind} "${PROJECT_BINARY_DIR}")
endforeach()

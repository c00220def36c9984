# cmake -DSOURCE=FOLDER -DOUT=FILE -P commit.cmake: writes the commit of the sources as a C++ define, "" where it is
# not known; "-dirty" behind it tells of changes that are in no commit. The file is touched only when it changes.
execute_process(COMMAND git --no-optional-locks describe --always --abbrev=40 --exclude=* --dirty
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define ESPALIER_COMMIT \"${commit}\"\n")

# Compiler cache, used when the machine has it. The linker is the compiler's own: with mold 1.10 a
# thread-local section that ends a page can put the start of the read-only part on a page that is not
# mapped, and the program is refused at its start (mold issue 1151); bfd links the largest test in 0.7 s.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
endif()

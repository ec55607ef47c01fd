# braid_embed_text(TARGET FILE HEADER NAME): puts the text of FILE into a generated header (included as HEADER) as the
# constant braid::NAME, so that an installed program needs no path to it.
function(braid_embed_text target file header name)
  file(READ ${PROJECT_SOURCE_DIR}/${file} BRAID_EMBEDDED_TEXT)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  set(BRAID_EMBEDDED_NAME ${name})
  set(BRAID_EMBEDDED_FILE ${file})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/embedded_text.h.in ${PROJECT_BINARY_DIR}/generated/${header} @ONLY)
  target_include_directories(${target} PUBLIC ${PROJECT_BINARY_DIR}/generated)
endfunction()

# Compiles presets/devices/*.json into the partition library: the files are the single source, and the
# program finds them wherever it is started. One table of names and texts (partition/specs.h).
file(GLOB spec_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/presets/devices/*.json)
list(SORT spec_files)
set(spec_names "")
set(spec_rows "")
set(spec_texts "")
foreach(spec_file ${spec_files})
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${spec_file})
  get_filename_component(spec_name ${spec_file} NAME_WE)
  file(READ ${spec_file} spec_text HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," spec_text "${spec_text}")
  string(MAKE_C_IDENTIFIER ${spec_name} spec_id)
  string(APPEND spec_texts "static const char ${spec_id}[] = {${spec_text}0};\n")
  string(APPEND spec_rows "    {\"${spec_name}\", ${spec_id}},\n")
  string(APPEND spec_names "\"${spec_name}\", ")
endforeach()
set(spec_source ${CMAKE_BINARY_DIR}/generated/part_specs.c)
file(CONFIGURE OUTPUT ${spec_source} @ONLY CONTENT
"/* Made by partition/specs.cmake from presets/devices/. */
#include \"partition/specs.h\"

#include <stddef.h>

@spec_texts@
const part_spec part_specs[] = {
@spec_rows@    {NULL, NULL},
};
const char *const part_spec_names[] = {@spec_names@NULL};
")
target_sources(atom_partition PRIVATE ${spec_source})

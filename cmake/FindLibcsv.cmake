# libcsv, which brings no description of its own, as the target Libcsv::csv.
find_path(Libcsv_INCLUDE_DIR csv.h)
find_library(Libcsv_LIBRARY csv)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libcsv REQUIRED_VARS Libcsv_LIBRARY Libcsv_INCLUDE_DIR)
mark_as_advanced(Libcsv_INCLUDE_DIR Libcsv_LIBRARY)
if(Libcsv_FOUND AND NOT TARGET Libcsv::csv)
  add_library(Libcsv::csv UNKNOWN IMPORTED)
  set_target_properties(Libcsv::csv PROPERTIES
    IMPORTED_LOCATION ${Libcsv_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${Libcsv_INCLUDE_DIR})
endif()

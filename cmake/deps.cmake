# Third-party libraries. Debian packages are found as usual; what comes in PyPI wheels lies in
# .deps/wheels, where scripts/bootstrap.sh unpacked the parts that are needed.
set(KEEL_DEPS ${PROJECT_SOURCE_DIR}/.deps CACHE PATH "folder made by scripts/bootstrap.sh")
set(wheels ${KEEL_DEPS}/wheels)
if(NOT EXISTS ${wheels}/torch/lib/libtorch_cpu.so)
  message(FATAL_ERROR "${wheels} has no libtorch: run scripts/bootstrap.sh first")
endif()

find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(GMPXX REQUIRED IMPORTED_TARGET gmpxx)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
if(BUILD_TESTING)
  find_package(GTest REQUIRED)
endif()

# libtorch without Python and without CUDA: only libtorch_cpu and libc10 are linked.
file(GLOB cuda_lib_dirs ${wheels}/nvidia/*/lib)
add_library(keel_torch INTERFACE)
# After the system's headers: the wheel brings its own fmt, which does not fit Debian's library.
target_compile_options(keel_torch INTERFACE "SHELL:-idirafter ${wheels}/torch/include"
  "SHELL:-idirafter ${wheels}/torch/include/torch/csrc/api/include")
target_link_libraries(keel_torch INTERFACE
  ${wheels}/torch/lib/libtorch_cpu.so ${wheels}/torch/lib/libc10.so)
set(dirs ${wheels}/torch/lib ${cuda_lib_dirs} ${wheels}/pyarrow)
list(TRANSFORM dirs PREPEND "-Wl,-rpath," OUTPUT_VARIABLE rpaths)
list(TRANSFORM cuda_lib_dirs PREPEND "-Wl,-rpath-link," OUTPUT_VARIABLE rpath_links)
target_link_options(keel_torch INTERFACE ${rpaths} ${rpath_links})

file(GLOB arrow_so ${wheels}/pyarrow/libarrow.so.*)
file(GLOB parquet_so ${wheels}/pyarrow/libparquet.so.*)
add_library(keel_arrow INTERFACE)
target_include_directories(keel_arrow SYSTEM INTERFACE ${wheels}/pyarrow/include)
target_link_libraries(keel_arrow INTERFACE ${parquet_so} ${arrow_so})
target_link_options(keel_arrow INTERFACE "-Wl,-rpath,${wheels}/pyarrow")

# torch headers cost seconds a file; every torch target shares one precompiled header.
function(keel_torch_pch target)
  if(NOT TARGET keel_torch_pch_owner)
    file(WRITE ${PROJECT_BINARY_DIR}/torch_pch.cc "")
    add_library(keel_torch_pch_owner OBJECT ${PROJECT_BINARY_DIR}/torch_pch.cc)
    target_link_libraries(keel_torch_pch_owner PRIVATE keel_torch)
    target_precompile_headers(keel_torch_pch_owner PRIVATE
      ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM keel_torch_pch_owner)
endfunction()

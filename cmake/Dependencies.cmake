# Libraries from Debian; docs/dependencies.md says what each is for. libtorch alone comes from PyPI or a folder. Archives where there
# are any: the programs then run where these packages are not installed. zlib and libcrypto are linked by name, as shared libraries
# since cpp-httplib, which has no archive, brings them along; the static planner takes their archives.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
pkg_check_modules(LIBCRYPTO REQUIRED libcrypto)
find_path(YAML_CPP_INCLUDE yaml-cpp/yaml.h REQUIRED)
find_library(YAML_CPP_ARCHIVE NAMES libyaml-cpp.a yaml-cpp REQUIRED)
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(PCRE2_ARCHIVE NAMES libpcre2-8.a pcre2-8 REQUIRED)
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
find_library(UTF8PROC_ARCHIVE NAMES libutf8proc.a utf8proc REQUIRED)
if(BRAID_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(BRAID_BUILD_BENCH)
  find_package(benchmark REQUIRED)
endif()

if(BRAID_WITH_TORCH)
  # Torch's own configuration asks for nvcc when libtorch was built for CUDA; Braid only links, so it needs none.
  if(NOT BRAID_TORCH_ROOT)
    message(FATAL_ERROR "set BRAID_TORCH_ROOT to the torch folder (it holds lib/ and include/); 'make build' finds it")
  endif()
  # Headers alone: libtorch contains Gloo, and a second copy must not be linked (comm/gloo_backend.cc).
  find_path(GLOO_INCLUDE gloo/context.h)
  if(NOT GLOO_INCLUDE)
    message(FATAL_ERROR "the headers of Gloo are missing: install libgloo-dev")
  endif()
  file(GLOB BRAID_TORCH_CUDA_LIBRARIES ${BRAID_TORCH_ROOT}/lib/libtorch_cuda.so ${BRAID_TORCH_ROOT}/lib/libc10_cuda.so)
  # NCCL, where libtorch was built with CUDA: the headers of CUDA and NCCL and the CUDA runtime from the packages that torch brings
  # along, else from the system.
  if(BRAID_TORCH_CUDA_LIBRARIES)
    file(GLOB packages ${BRAID_TORCH_ROOT}/../nvidia/*)
    find_path(BRAID_CUDA_INCLUDE crt/host_config.h HINTS ${packages} /usr/local/cuda PATH_SUFFIXES include)
    find_path(BRAID_CCCL_INCLUDE nv/target HINTS ${packages} /usr/local/cuda PATH_SUFFIXES include include/cccl)
    find_path(BRAID_NCCL_INCLUDE nccl.h HINTS ${packages} PATH_SUFFIXES include)
    file(GLOB runtimes ${BRAID_TORCH_ROOT}/../nvidia/*/lib/libcudart.so.* ${BRAID_TORCH_ROOT}/lib/libcudart*.so.* /usr/local/cuda/lib64/libcudart.so)
    if(BRAID_CUDA_INCLUDE AND BRAID_CCCL_INCLUDE AND BRAID_NCCL_INCLUDE AND runtimes)
      list(GET runtimes 0 BRAID_CUDA_RUNTIME)
      message(STATUS "NCCL: ${BRAID_NCCL_INCLUDE}")
    else()
      message(STATUS "NCCL: no headers of CUDA and NCCL; ranks exchange tensors of GPUs through host memory")
    endif()
  endif()
  add_library(braid_torch INTERFACE)
  target_include_directories(braid_torch SYSTEM INTERFACE
    ${BRAID_TORCH_ROOT}/include ${BRAID_TORCH_ROOT}/include/torch/csrc/api/include)
  target_compile_definitions(braid_torch INTERFACE BRAID_WITH_TORCH=1)
  # Without it at::parallel_for runs its body on one thread. The runtime library is libtorch's own copy where it has
  # one: two copies would be two pools of spinning threads.
  target_compile_options(braid_torch INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fopenmp>)
  file(GLOB BRAID_TORCH_OPENMP ${BRAID_TORCH_ROOT}/lib/libgomp*.so*)
  if(NOT BRAID_TORCH_OPENMP)
    set(BRAID_TORCH_OPENMP $<$<CXX_COMPILER_ID:GNU>:gomp>)
  endif()
  target_link_directories(braid_torch INTERFACE ${BRAID_TORCH_ROOT}/lib)
  target_link_options(braid_torch INTERFACE -Wl,--no-as-needed)
  set(CMAKE_BUILD_RPATH ${BRAID_TORCH_ROOT}/lib)  # where the build folder's programs find libtorch; apps/braid says it of installed ones
  # libstdc++ first: some builds of libtorch export parts of an older one (std::filesystem), which must not take its place.
  target_link_libraries(braid_torch INTERFACE $<$<CXX_COMPILER_ID:GNU>:stdc++> torch torch_cpu c10 ${BRAID_TORCH_CUDA_LIBRARIES} ${BRAID_TORCH_OPENMP} Threads::Threads)
endif()

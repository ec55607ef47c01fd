# Libraries from Debian; docs/dependencies.md says what each is for. libtorch alone comes from PyPI or a folder.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
pkg_check_modules(LIBCRYPTO REQUIRED IMPORTED_TARGET libcrypto)
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
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
  target_link_options(braid_torch INTERFACE -Wl,-rpath,${BRAID_TORCH_ROOT}/lib -Wl,--no-as-needed)
  target_link_libraries(braid_torch INTERFACE torch torch_cpu c10 ${BRAID_TORCH_CUDA_LIBRARIES} ${BRAID_TORCH_OPENMP} Threads::Threads)

  # One precompiled header for every target on libtorch: parsing its headers is most of their compile time.
  file(WRITE ${PROJECT_BINARY_DIR}/generated/torch_pch.cc.tmp "")
  file(COPY_FILE ${PROJECT_BINARY_DIR}/generated/torch_pch.cc.tmp ${PROJECT_BINARY_DIR}/generated/torch_pch.cc ONLY_IF_DIFFERENT)
  add_library(braid_torch_pch OBJECT ${PROJECT_BINARY_DIR}/generated/torch_pch.cc)
  target_link_libraries(braid_torch_pch PRIVATE braid_torch)
  target_precompile_headers(braid_torch_pch PRIVATE
    <ATen/core/Tensor.h> <ATen/TensorOperators.h> <ATen/core/grad_mode.h> <torch/csrc/autograd/custom_function.h>
    <functional> <map> <memory> <string> <vector>)
endif()

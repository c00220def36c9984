# The CUDA device is built where nvcc is found (-DESPALIER_CUDA=OFF: not even there), for the cards of
# ESPALIER_CUDA_ARCHITECTURES. Sanitizers and builds for another machine leave it out.
set(ESPALIER_CUDA AUTO CACHE STRING "the CUDA device: AUTO where nvcc is found, ON, or OFF")
set(ESPALIER_CUDA_ARCHITECTURES "80-real;86-real;89-real;90a-real;80-virtual;90-virtual"
    CACHE STRING "what the kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES; one of them compiles quicker")

set(ESPALIER_HAS_CUDA OFF)
if(ESPALIER_CUDA AND NOT ESPALIER_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  find_program(ESPALIER_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
  if(ESPALIER_NVCC)
    set(CMAKE_CUDA_COMPILER ${ESPALIER_NVCC} CACHE FILEPATH "nvcc")
    set(CMAKE_CUDA_ARCHITECTURES ${ESPALIER_CUDA_ARCHITECTURES})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "what nvcc compiles the host's part with")
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(ESPALIER_HAS_CUDA ON)
    message(NOTICE "espalier: with CUDA ${CUDAToolkit_VERSION} (${ESPALIER_CUDA_ARCHITECTURES})")
  elseif(ESPALIER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "espalier: ESPALIER_CUDA is ON and there is no nvcc")
  else()
    message(NOTICE "espalier: without CUDA, there is no nvcc")
  endif()
endif()

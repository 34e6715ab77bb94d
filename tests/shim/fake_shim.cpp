/* The shim's engine, where launches may be recorded first (fake_cuda.cpp). */
#define shim_launch shim_launch_now
#include "shim.cpp"

// What bodies of regions are written in.
#pragma once
#include "kernel/cuda/device/math64.cuh"
#include "kernel/cuda/device/types.cuh"

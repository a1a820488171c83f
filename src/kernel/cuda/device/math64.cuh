// float64 functions that bodies call by name (op/elementwise/scalar_math.h has the same in the C library's).
#pragma once
__device__ inline double sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
__device__ inline double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
__device__ inline double gelu(double x) { return x * normal_cdf(x); }
__device__ inline double gelu_slope(double x) {
  return normal_cdf(x) + x * exp(-0.5 * x * x) * 0.39894228040143267794;
}
__device__ inline double power(double x, double y) { return y == 2 ? x * x : y == 3 ? x * x * x : pow(x, y); }

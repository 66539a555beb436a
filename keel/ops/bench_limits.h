// The machine's limits, measured, so that benchmarks can print shares of them. Both use the compute
// pool's threads and take about 0.1 s; measure before and after a benchmark: hosts are noisy.
#pragma once

namespace keel::ops {

// f32 fused multiply-adds, two operations each, from registers.
double measure_fma_gflops();

// Sequential reads of 256 MiB a thread, far above any cache.
double measure_dram_read_gb_per_s();

}  // namespace keel::ops

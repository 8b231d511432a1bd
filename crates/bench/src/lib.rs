//! Workloads and the measuring harness.

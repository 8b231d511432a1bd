//! Cui, Wang, Chen, Shi, *Lock-Contention-Aware Scheduler: A Scalable and Energy-Efficient Method
//! for Addressing Scalability Collapse on Multicore Systems*, ACM TACO 9(4), 2013. The paper
//! prints no numbers for its plots, so the claims follow its text.

pub mod contention_aware;
pub mod figure_1;
pub mod figure_3;
pub mod figure_4;
pub mod figure_5;
pub mod figure_6;
pub mod figure_7;
pub mod figure_9;
pub mod loads;
pub mod programs;
pub mod single_counter;

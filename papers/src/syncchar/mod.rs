//! Porter, Hofmann, Witchel, *Predicting and Tuning the Performance of Multicore Systems*, 2008,
//! section 5. The plots' values are in no text; the claims are what the text says of them.

pub mod figure_5;
pub mod figure_6;
mod programs;

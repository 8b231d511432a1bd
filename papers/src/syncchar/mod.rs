//! Porter, Hofmann, Witchel, *Predicting and Tuning the Performance of Multicore Systems*, 2008,
//! section 5. The paper prints no numbers for its plots, so the claims follow its text.

pub mod figure_5;
pub mod figure_6;
mod programs;

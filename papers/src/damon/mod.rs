//! Johnson, Athanassoulis, Stoica, Ailamaki, *A New Look at the Roles of Spinning and Blocking*,
//! DaMoN 2009.

pub mod figure_1;
pub mod figure_2;
pub mod figure_3;
pub mod figure_4;
pub mod figure_5;
mod locks;

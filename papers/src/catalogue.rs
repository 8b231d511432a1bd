//! Every figure and table, in the order of `unconvoy papers list`.

use crate::figure::Figure;
use crate::ours::{bounds, sizes, throughput};
use crate::taco::contention_aware;
use crate::{asplos, damon, syncchar, taco};

/// Every figure.
pub const FIGURES: &[Figure] = &[
    asplos::figure_5::NATIVE,
    asplos::figure_8::NATIVE,
    asplos::figure_9::NATIVE,
    asplos::figure_10::NATIVE,
    asplos::figure_11::NATIVE,
    asplos::figure_12::NATIVE,
    damon::figure_1::NATIVE,
    taco::figure_1::NATIVE,
    taco::figure_3::NATIVE,
    contention_aware::NATIVE,
    throughput::NATIVE,
    asplos::figure_1::SIMULATED,
    asplos::figure_1::PUBLISHED,
    asplos::figure_3::SIMULATED,
    asplos::figure_4::SIMULATED,
    asplos::figure_5::SIMULATED,
    asplos::figure_6::SIMULATED,
    asplos::figure_8::SIMULATED,
    asplos::figure_8::PUBLISHED,
    asplos::figure_9::SIMULATED,
    asplos::figure_10::SIMULATED,
    asplos::figure_11::SIMULATED,
    asplos::figure_11::PUBLISHED,
    asplos::figure_12::SIMULATED,
    damon::figure_1::SIMULATED,
    damon::figure_2::SIMULATED,
    damon::figure_3::SIMULATED,
    damon::figure_4::SIMULATED,
    damon::figure_5::SIMULATED,
    syncchar::figure_5::SIMULATED,
    syncchar::figure_5::PUBLISHED,
    syncchar::figure_6::SIMULATED,
    syncchar::figure_6::PUBLISHED,
    taco::figure_1::SIMULATED,
    taco::figure_3::SIMULATED,
    taco::single_counter::SIMULATED,
    taco::figure_4::SIMULATED,
    taco::figure_5::SIMULATED,
    taco::figure_6::SIMULATED,
    taco::figure_7::SIMULATED,
    taco::figure_9::SIMULATED,
    bounds::SIMULATED,
    sizes::SIMULATED,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Made;

    #[test]
    fn figure_name_and_remark_match_its_kind_and_paper() {
        for figure in FIGURES {
            let is_simulated = matches!(figure.made, Made::Simulated(_));
            assert_eq!(figure.name.starts_with("sim-"), is_simulated, "{}", figure.name);
            if let Made::Simulated(simulated) = &figure.made {
                let published = format!("{}-published", figure.name);
                let has_published = FIGURES.iter().any(|other| other.name == published);
                assert_eq!(has_published, !simulated.changes.is_empty(), "{}", figure.name);
            }
            let with_name = FIGURES.iter().filter(|other| other.name == figure.name);
            assert_eq!(with_name.count(), 1, "{}", figure.name);
            if let Some((_, number)) = figure.paper.to_string().split_once(", Figure ") {
                let words: Vec<&str> = figure.remark.split([' ', ',', ';', '.']).collect();
                assert!(
                    words.contains(&number) && figure.remark.contains("section"),
                    "{}",
                    figure.name
                );
            }
        }
    }
}

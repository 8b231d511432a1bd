//! Placement in the special set, and which cores balance their load (sections 3.3 and 3.4).

/// Chooses the core that a task moves to in a set of `bound` cores (Algorithm 2, line 8:
/// `get_target_core`): a core with the fewest tasks. Among equals, prefers the task's present core
/// `here`, then the lowest number. `load` returns the number of tasks that run or wait on a core,
/// not counting the task itself.
///
/// # Panics
///
/// `bound` is 0.
pub fn target(bound: u32, here: u32, load: impl Fn(u32) -> u32) -> u32 {
    (0..bound).min_by_key(|&core| (load(core), core != here)).expect("a set has a core")
}

/// Whether load balancing may move tasks between two cores: only if both are in the set, or both
/// outside.
pub fn balance_together(bound: u32, one: u32, other: u32) -> bool {
    (one < bound) == (other < bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn target_prefers_the_present_core_among_equals() {
        let loads = [1, 0, 0, 0];
        assert_eq!(target(4, 2, |core| loads[core as usize]), 2);
        assert_eq!(target(2, 2, |core| loads[core as usize]), 1);
        assert_eq!(target(4, 0, |core| loads[core as usize]), 1);
    }

    #[test]
    fn balancing_across_the_edge_of_the_set_is_refused() {
        assert!(balance_together(4, 0, 3) && balance_together(4, 4, 31));
        assert!(!balance_together(4, 3, 4) && !balance_together(4, 31, 0));
    }

    proptest! {
        /// Tasks that are placed one after another spread evenly.
        #[test]
        fn placement_is_even(bound in 1_u32..64, tasks in 0_u32..200, here in 0_u32..64) {
            let mut loads = vec![0; 64];
            for _ in 0..tasks {
                let core = target(bound, here, |core| loads[core as usize]);
                loads[core as usize] += 1;
            }
            let set = &loads[..bound as usize];
            prop_assert!(set.iter().max().unwrap() - set.iter().min().unwrap() <= 1);
            prop_assert_eq!(set.iter().sum::<u32>(), tasks);
        }
    }
}

//! Control policies: from what was observed to how many waiting threads should sleep.
//!
//! The ASPLOS 2010 paper controls directly, and names what control theory would do better with a
//! noisy sensor (section 6.2.1): a low-pass filter, a PID loop, a Kalman filter. All of them are
//! here, pure: no clock, no thread, one step per interval. What they control is the same: the
//! *demand*, the threads that run, wait to run or sleep for load, is to exceed the sleep target by
//! what the machine can run.

mod direct;
mod kalman;
mod low_pass;
pub(crate) mod observation;
mod pid;

pub use observation::Observation;

macro_rules! policies {
    ($($(#[$doc:meta])* $name:literal $variant:ident($state:path);)*) => {
        /// A policy and what it remembers between intervals.
        #[derive(Debug, Clone)]
        pub enum Policy {
            $($(#[$doc])* $variant($state),)*
        }

        impl Policy {
            /// The policies' names, the default first.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The policy of this name, at its beginning.
            pub fn named(name: &str) -> Option<Policy> {
                match name {
                    $($name => Some(Policy::$variant(<$state>::default())),)*
                    _ => None,
                }
            }

            /// The sleep target for the next interval.
            pub fn target(&mut self, observed: Observation) -> u32 {
                match self {
                    $(Policy::$variant(policy) => policy.target(observed),)*
                }
            }
        }
    };
}

policies! {
    /// The paper's.
    "direct" Direct(direct::Direct);
    /// The direct one behind a low-pass filter.
    "low-pass" LowPass(low_pass::LowPass);
    /// Proportional, integral and derivative.
    "pid" Pid(pid::Pid);
    /// A filter that estimates the demand and where it goes.
    "kalman" Kalman(kalman::Kalman);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::POLICIES;
    use crate::load::sensor::Reading;

    /// A machine with two processors, on which `demand` threads want to run; all who should sleep do.
    fn run(policy: &mut Policy, demands: impl IntoIterator<Item = f64>) -> Vec<u32> {
        let mut sleeping = 0;
        let step = |demand: f64| {
            let runnable = (demand - f64::from(sleeping)).max(0.0);
            let reading = Reading::of_runnable(runnable, 2.0);
            sleeping = policy.target(Observation { reading, sleeping, polling: 0.0 });
            sleeping
        };
        demands.into_iter().map(step).collect()
    }

    fn each(test: impl Fn(&str, &mut Policy)) {
        for name in Policy::NAMES {
            test(name, &mut Policy::named(name).expect("its own name"));
        }
    }

    /// Deterministic noise of standard deviation 2, without a trend: the sum of 12 uniform numbers.
    fn noise(count: usize) -> Vec<f64> {
        let mut seed = 1_u32;
        let mut uniform = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(seed >> 8) / f64::from(1 << 24)
        };
        (0..count).map(|_| 2.0 * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0)).collect()
    }

    fn deviation(values: &[u32]) -> f64 {
        let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>();
        (squares / values.len() as f64).sqrt()
    }

    #[test]
    fn a_step_is_followed_without_error_and_with_little_overshoot() {
        each(|name, policy| {
            let targets = run(policy, [40.0; 60]);
            assert_eq!(targets.last(), Some(&37), "{name}: {targets:?}");
            assert!(targets.iter().all(|&target| target <= 37 + 37 / 4), "{name} overshoots: {targets:?}");
        });
    }

    #[test]
    fn underload_wakes_everybody() {
        each(|name, policy| {
            let targets = run(policy, [40.0; 60].into_iter().chain([1.0; 60]));
            assert_eq!(targets.last(), Some(&0), "{name}: {targets:?}");
        });
    }

    #[test]
    fn a_ramp_is_followed() {
        each(|name, policy| {
            let targets = run(policy, (0..100).map(|step| 3.0 + f64::from(step) / 4.0));
            let last = targets.last().copied().unwrap_or(0);
            assert!(last.abs_diff(25) <= 2, "{name}: {targets:?}");
        });
    }

    #[test]
    fn stated_noise_of_a_policy_is_what_it_leaves_and_less_than_the_direct_ones() {
        let direct = POLICIES[0].noise;
        for stated in POLICIES {
            let name = stated.entry.name;
            let mut policy = Policy::named(name).expect("the catalogue's names are the policies'");
            let targets = run(&mut policy, noise(2000).into_iter().map(|noise| 40.0 + noise));
            let deviation = deviation(&targets[100..]);
            assert!((deviation - stated.noise).abs() < 0.005, "{name}: {deviation:.3}");
            assert!(name == "direct" || deviation < 0.7 * direct, "{name}: {deviation:.2}, direct: {direct:.2}");
        }
    }

    #[test]
    fn where_threads_mostly_poll_there_is_no_margin() {
        each(|name, policy| {
            let reading = Reading::of_runnable(12.0, 2.0);
            let mut busy = policy.clone();
            let targets = |policy: &mut Policy, polling| {
                (0..40).map(|_| policy.target(Observation { reading, sleeping: 0, polling })).next_back()
            };
            assert!(targets(policy, 0.9) > targets(&mut busy, 0.0), "{name}");
        });
    }
}

//! Control policies: from an observation to the number of waiting threads that should sleep.
//!
//! The ASPLOS 2010 paper controls directly, and names better controls for a noisy sensor (section
//! 6.2.1): a low-pass filter, a PID loop, a Kalman filter. All of them are here. They are pure:
//! they use no clock and no thread, and take one step per interval. The *demand* is the number of
//! threads that run, wait to run or sleep for load. Each policy sets the sleep target to the part
//! of the demand that the machine cannot run.

mod direct;
mod kalman;
mod low_pass;
pub(crate) mod observation;
mod pid;

pub use observation::Observation;

macro_rules! policies {
    ($($(#[$doc:meta])* $name:literal $variant:ident($state:path);)*) => {
        /// A policy and its state.
        #[derive(Debug, Clone)]
        pub enum Policy {
            $($(#[$doc])* $variant($state),)*
        }

        impl Policy {
            /// The policies' names, the default first.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The policy of this name, in its initial state.
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
    /// The policy of the paper.
    "direct" Direct(direct::Direct);
    /// The direct policy behind a low-pass filter.
    "low-pass" LowPass(low_pass::LowPass);
    /// A proportional-integral-derivative loop.
    "pid" Pid(pid::Pid);
    /// A filter that estimates the demand and its trend.
    "kalman" Kalman(kalman::Kalman);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::POLICIES;
    use crate::load::sensor::Reading;

    /// Runs `policy` on a machine with two processors. Each of `demands` is the number of threads
    /// that want to run in one interval, and every thread that should sleep does. Returns the
    /// targets.
    fn run(policy: &mut Policy, demands: impl IntoIterator<Item = f64>) -> Vec<u32> {
        let mut sleeping = 0;
        let step = |demand: f64| {
            let runnable = (demand - f64::from(sleeping)).max(0.0);
            let reading = Reading::of_runnable(runnable, 2.0);
            sleeping = policy.target(Observation { reading, sleeping, margin: 1.0 });
            sleeping
        };
        demands.into_iter().map(step).collect()
    }

    fn each(test: impl Fn(&str, &mut Policy)) {
        for name in Policy::NAMES {
            test(name, &mut Policy::named(name).expect("a name of the table"));
        }
    }

    /// Deterministic noise of standard deviation 2, without a trend: sums of 12 uniform numbers.
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
    fn target_after_step_has_no_error_and_little_overshoot() {
        each(|name, policy| {
            let targets = run(policy, [40.0; 60]);
            assert_eq!(targets.last(), Some(&37), "{name}: {targets:?}");
            assert!(
                targets.iter().all(|&target| target <= 37 + 37 / 4),
                "{name} overshoots: {targets:?}"
            );
        });
    }

    #[test]
    fn target_under_underload_is_zero() {
        each(|name, policy| {
            let targets = run(policy, [40.0; 60].into_iter().chain([1.0; 60]));
            assert_eq!(targets.last(), Some(&0), "{name}: {targets:?}");
        });
    }

    #[test]
    fn target_on_ramp_follows_demand() {
        each(|name, policy| {
            let targets = run(policy, (0..100).map(|step| 3.0 + f64::from(step) / 4.0));
            let last = targets.last().copied().unwrap_or(0);
            assert!(last.abs_diff(25) <= 2, "{name}: {targets:?}");
        });
    }

    #[test]
    fn target_noise_of_each_policy_matches_catalogue() {
        let direct = POLICIES[0].noise;
        for stated in POLICIES {
            let name = stated.entry.name;
            let mut policy = Policy::named(name).expect("the catalogue names the policies");
            let targets = run(&mut policy, noise(2000).into_iter().map(|noise| 40.0 + noise));
            let deviation = deviation(&targets[100..]);
            assert!((deviation - stated.noise).abs() < 0.005, "{name}: {deviation:.3}");
            assert!(
                name == "direct" || deviation < 0.7 * direct,
                "{name}: {deviation:.2}, direct: {direct:.2}"
            );
        }
    }

    #[test]
    fn target_with_a_margin_is_lower() {
        each(|name, policy| {
            let reading = Reading::of_runnable(12.0, 2.0);
            let mut without = policy.clone();
            let target = |policy: &mut Policy, margin| {
                policy.target(Observation { reading, sleeping: 0, margin })
            };
            assert!(target(policy, 3.0) < target(&mut without, 0.0), "{name}");
        });
    }
}

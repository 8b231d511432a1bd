//! The rules by which [`control`](super::control) goes beyond the paper, as types: an experiment
//! can omit one, or keep one alone.
//!
//! The choice is made at compile time, so the shipped manager has all rules and no test for them.
//! With the feature `ablation`, the manager reads a process-wide choice at run time.

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $number:literal $name:literal;)*) => {
        /// A rule that is not in the paper; [`control`](super::control) explains each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Rule {
            $($(#[$doc])* $rule = $number,)*
        }

        /// Names of sets of rules: no rule, all rules but one, and one rule alone. Without rules
        /// the manager behaves as [`published`](super::published), except for threads with a
        /// real-time policy.
        pub const ABLATIONS: &[(&str, u32)] = &[
            ("no-rules", 0),
            $(
                (concat!("without-", $name), !(1 << $number)),
                (concat!("only-", $name), 1 << $number),
            )*
        ];
    };
}

rules! {
    /// Rule 1.
    Grace = 1 "grace";
    /// Rule 2.
    Turns = 2 "turns";
    /// Rule 3.
    Contender = 3 "contender";
    /// Rule 4.
    Parking = 4 "parking";
    /// Rule 5.
    Pins = 5 "pins";
    /// Rule 6.
    Notice = 6 "notice";
    /// Rule 7.
    Delay = 7 "delay";
    /// Rule 8.
    Margin = 8 "margin";
    /// Rule 9.
    Yields = 9 "yields";
}

/// A set of rules.
pub trait Rules: 'static {
    /// Whether the set has `rule`.
    fn has(rule: Rule) -> bool;
}

/// All rules.
pub struct All;

/// The rules of a bit set, in which rule N is bit N.
pub struct Set<const BITS: u32>;

impl Rules for All {
    #[inline(always)]
    fn has(_: Rule) -> bool {
        true
    }
}

impl<const BITS: u32> Rules for Set<BITS> {
    #[inline(always)]
    fn has(rule: Rule) -> bool {
        BITS & 1 << rule as u32 != 0
    }
}

/// The rules of the shipped manager.
#[cfg(not(feature = "ablation"))]
pub type Shipped = All;

/// The rules of the shipped manager.
#[cfg(feature = "ablation")]
pub type Shipped = chosen::Chosen;

/// Replaces the rules of the shipped manager by those of an [ablation](ABLATIONS). Returns false if
/// there is none of this name, or the library was built without the feature `ablation`.
pub fn choose(name: &str) -> bool {
    let set = ABLATIONS.iter().find(|(known, _)| *known == name).map(|&(_, set)| set);
    #[cfg(feature = "ablation")]
    set.into_iter().for_each(|set| chosen::SET.store(set, core::sync::atomic::Ordering::Relaxed));
    set.is_some() && cfg!(feature = "ablation")
}

#[cfg(feature = "ablation")]
mod chosen {
    use core::sync::atomic::AtomicU32;
    use core::sync::atomic::Ordering::Relaxed;

    use super::{Rule, Rules};

    pub(super) static SET: AtomicU32 = AtomicU32::new(u32::MAX);

    /// The rules that the process has chosen.
    pub struct Chosen;

    impl Rules for Chosen {
        #[inline(always)]
        fn has(rule: Rule) -> bool {
            SET.load(Relaxed) & 1 << rule as u32 != 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_chosen_only_if_they_are_known_and_can_be() {
        assert!(!choose("without-a-name"));
        #[cfg(not(feature = "ablation"))]
        assert!(!choose(ABLATIONS[0].0));
    }

    #[test]
    fn set_has_the_rules_of_its_bits() {
        const BITS: u32 = 1 << Rule::Notice as u32 | 1 << Rule::Yields as u32;
        assert!(Set::<BITS>::has(Rule::Notice) && Set::<BITS>::has(Rule::Yields));
        assert!(!Set::<BITS>::has(Rule::Margin) && !Set::<0>::has(Rule::Notice));
    }
}

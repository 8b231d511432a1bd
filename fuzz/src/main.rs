//! Runs one of the parsers under libFuzzer: `UNCONVOY_FUZZ=NAME unconvoy-fuzz CORPUS...`.
//! `make fuzz` runs them all.

#![no_main]

use std::sync::OnceLock;

use unconvoy_cli::fuzz::{TARGETS, Target};

static CHOSEN: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var("UNCONVOY_FUZZ").unwrap_or_default();
        let target = TARGETS.iter().find(|(known, _)| *known == name);
        let Some((_, target)) = target else {
            let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("set UNCONVOY_FUZZ to one of: {}", names.join(" "));
            std::process::exit(2);
        };
        CHOSEN.get_or_init(|| *target);
    },
    |data: &[u8]| CHOSEN.get().expect("chosen at the start")(data)
);

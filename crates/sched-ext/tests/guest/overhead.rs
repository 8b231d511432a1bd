//! What `unconvoy sched` costs where nobody contends, in a guest's instructions.

use std::time::Duration;

use crate::machine::{Clock, Machine, Said};

const ROUNDS: usize = 5;

/// Goal: at most 5 % more instructions than under the default scheduler, on one processor and on several.
#[test]
#[ignore = "a measurement: make bench-sched"]
fn overhead() {
    println!("instructions of all processors; median (least to most) of {ROUNDS} rounds in turns\n");
    println!("| processors | work | default | unconvoy sched | more | idle, default | idle, unconvoy sched |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for processors in [1, 2, 4] {
        let machine = Machine {
            clock: Clock::Instructions,
            settings: &[("ROUNDS", ROUNDS as u32)],
            patience: Duration::from_secs(1200),
            ..Machine::new("overhead.sh", processors)
        };
        let Some(said) = machine.boot() else { return };
        assert!(said.words("unconvoy.1")[0] == "enabled" && said.words("default.1") == ["disabled"]);
        for work in ["exec", "pipe"] {
            let (default, own) = (Measured::of(&said, "default", work), Measured::of(&said, "unconvoy", work));
            println!(
                "| {processors} | {work} | {} | {} | {:+.1} % | {:.1} % | {:.1} % |",
                default.text(),
                own.text(),
                100.0 * (own.median() / default.median() - 1.0),
                default.idle,
                own.idle,
            );
        }
    }
}

/// A work's rounds under one scheduler.
struct Measured {
    /// Instructions, in order of size.
    instructions: Vec<u64>,
    /// The part of the time that no processor worked, in percent: what the guest's clock has beyond its instructions.
    idle: f64,
}

impl Measured {
    fn of(said: &Said, scheduler: &str, work: &str) -> Self {
        let (mut instructions, mut time) = (Vec::new(), 0);
        for round in 1..=ROUNDS {
            let numbers = said.numbers(&format!("{scheduler}.{round}.{work}"));
            instructions.push(said.instructions[numbers[0] as usize - 1]);
            time += numbers[1];
        }
        instructions.sort_unstable();
        let idle = 100.0 * (1.0 - instructions.iter().sum::<u64>() as f64 / time as f64);
        Measured { instructions, idle }
    }

    fn median(&self) -> f64 {
        self.instructions[ROUNDS / 2] as f64
    }

    fn text(&self) -> String {
        let millions = |instructions: u64| format!("{:.1}", instructions as f64 / 1e6);
        let (least, most) = (self.instructions[0], self.instructions[ROUNDS - 1]);
        format!("{:.1} M ({} to {})", self.median() / 1e6, millions(least), millions(most))
    }
}

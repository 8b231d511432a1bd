//! Overhead of `unconvoy sched` without contention, in instructions of a guest.

use std::time::Duration;

use crate::machine::{Clock, Machine, Output};

const ROUNDS: usize = 5;

/// Goal: at most 5 % more instructions than under the default scheduler, on one and on several
/// processors.
#[test]
#[ignore = "a measurement: make bench-sched"]
fn overhead() {
    println!(
        "instructions of all processors; median (min to max) of {ROUNDS} interleaved rounds\n"
    );
    println!(
        "| processors | work | default | unconvoy sched | overhead | idle, default | \
         idle, unconvoy sched |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for processors in [1, 2, 4] {
        let machine = Machine {
            clock: Clock::Instructions,
            settings: &[("ROUNDS", ROUNDS as u32)],
            timeout: Duration::from_secs(1200),
            ..Machine::new("overhead.sh", processors)
        };
        let output = machine.boot().expect("a guest (make kernel)");
        assert!(
            output.words("unconvoy.1")[0] == "enabled" && output.words("default.1") == ["disabled"]
        );
        for work in ["exec", "pipe"] {
            let (default, own) =
                (Measured::of(&output, "default", work), Measured::of(&output, "unconvoy", work));
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

/// Measurements of one benchmark under one scheduler.
struct Measured {
    /// Instructions per round, sorted.
    instructions: Vec<u64>,
    /// Share of the time without a running processor, in percent: the guest's clock minus its
    /// instructions.
    idle: f64,
}

impl Measured {
    fn of(output: &Output, scheduler: &str, work: &str) -> Self {
        let (mut instructions, mut time) = (Vec::new(), 0);
        for round in 1..=ROUNDS {
            let numbers = output.numbers(&format!("{scheduler}.{round}.{work}"));
            instructions.push(output.instructions[numbers[0] as usize - 1]);
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

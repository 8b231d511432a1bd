//! The number of runnable threads of the whole machine, from the fourth field of `/proc/loadavg`.
//!
//! One short file whatever the number of threads; but the number is of one moment, not of an
//! interval, and it counts everybody's threads. So a process that shares its machine takes the others' load for its own, and
//! its waiters sleep where with `schedstat` they would not (ASPLOS 2010, section 5.5). On a machine of
//! one's own it is the cheapest sensor that needs no privilege. In a container it is the host's number, unless lxcfs
//! is mounted over it.

use super::capacity::Capacity;
use super::file::{File, Source, decimal};
use crate::load::sensor::{Reading, Sensor};

/// The sensor.
pub struct LoadAverage {
    source: Source,
    own_thread: u32,
    capacity: Capacity,
}

/// R of `... R/T LAST`: the runnable threads, the one that reads among them.
fn runnable(line: &[u8]) -> Option<u32> {
    let field = line.split(|&byte| byte == b' ').nth(3)?;
    let slash = field.iter().position(|&byte| byte == b'/')?;
    decimal(field.get(..slash)?)?.try_into().ok()
}

impl LoadAverage {
    /// A sensor on a thread with id `own_thread`; `None` without the file. For `keep_open` see
    /// [`Schedstat::new`](super::schedstat::Schedstat::new).
    pub fn open(keep_open: bool, own_thread: u32) -> Option<Self> {
        let source = Source::new(|| File::open(c"/proc/loadavg"), keep_open)?;
        Some(LoadAverage { source, own_thread, capacity: Capacity::default() })
    }
}

impl Sensor for LoadAverage {
    fn begin(&mut self, now: u64) {
        let _ = self.read(now);
    }

    fn read(&mut self, now: u64) -> Option<Reading> {
        self.capacity.follow_process(now, self.own_thread);
        let mut line = [0u8; 128];
        let len = self.source.read_into(&mut line)?;
        let others = runnable(line.get(..len)?)?.saturating_sub(1);
        Some(Reading::of_runnable(f64::from(others), self.capacity.processors()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_field_before_the_slash() {
        assert_eq!(runnable(b"2.18 2.52 2.48 12/103 32610\n"), Some(12));
        assert_eq!(runnable(b"0.00 0.00 0.00 1/3 9\n"), Some(1));
        for wrong in [&b""[..], b"1 2 3", b"1 2 3 4 5", b"1 2 3 /5 6", b"1 2 3 x/5 6"] {
            assert_eq!(runnable(wrong), None);
        }
    }

    #[test]
    fn sees_threads_that_spin() {
        let stop = std::sync::atomic::AtomicBool::new(false);
        let ordering = std::sync::atomic::Ordering::Relaxed;
        let Some(mut sensor) = LoadAverage::open(true, 0) else {
            println!("skipped: /proc/loadavg cannot be read here");
            return;
        };
        let most = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(ordering) {
                        std::hint::spin_loop();
                    }
                });
            }
            // Of one moment each; the machine's other threads only add to it.
            let readings = (1..=20).map(|moment| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                sensor.read(moment).expect("the file is there").runnable
            });
            let most = readings.fold(0.0, f64::max);
            stop.store(true, ordering);
            most
        });
        assert!(most >= 3.0, "{most}");
    }
}

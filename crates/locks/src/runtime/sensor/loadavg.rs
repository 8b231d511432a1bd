//! The number of runnable threads of the whole machine, from the fourth field of `/proc/loadavg`.
//!
//! A reading is one short file, however many threads there are. But it is a snapshot, and counts
//! the threads of all processes: on a shared machine, waiters sleep where they would not under
//! `schedstat` (ASPLOS 2010, section 5.5). On a dedicated machine this is the cheapest sensor
//! without privileges. In a container the file shows the host's number, unless lxcfs is mounted
//! over it.

use super::capacity::Capacity;
use super::file::{File, Source, decimal};
use crate::load::sensor::{Reading, Sensor};

/// The sensor.
pub struct LoadAverage {
    source: Source,
    own_thread: u32,
    capacity: Capacity,
}

/// R of `... R/T LAST`: the number of runnable threads, including the reader.
fn runnable(line: &[u8]) -> Option<u32> {
    let field = line.split(|&byte| byte == b' ').nth(3)?;
    let slash = field.iter().position(|&byte| byte == b'/')?;
    decimal(field.get(..slash)?)?.try_into().ok()
}

impl LoadAverage {
    /// The sensor, for a controller with thread id `own_thread`; `None` if the file cannot be
    /// opened. For `keep_open` see [`Schedstat::new`](super::schedstat::Schedstat::new).
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
    fn runnable_of_loadavg_line_is_fourth_field() {
        assert_eq!(runnable(b"2.18 2.52 2.48 12/103 32610\n"), Some(12));
        assert_eq!(runnable(b"0.00 0.00 0.00 1/3 9\n"), Some(1));
        for wrong in [&b""[..], b"1 2 3", b"1 2 3 4 5", b"1 2 3 /5 6", b"1 2 3 x/5 6"] {
            assert_eq!(runnable(wrong), None);
        }
    }

    #[test]
    fn reading_with_three_spinning_threads_is_at_least_three() {
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
            // Snapshots: other threads of the machine can only raise them.
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

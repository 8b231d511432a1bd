//! The order in which this machine's processors join the special set.

use std::fs;
use std::path::Path;

use unconvoy_sched::topology::places;

/// The online processors, in that order.
pub(super) fn read() -> Vec<u16> {
    let places =
        places(&|file: &str| fs::read_to_string(Path::new("/sys/devices/system").join(file)).ok());
    places.iter().filter_map(|place| place.cpu.try_into().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_has_no_duplicates() {
        let order = read();
        if order.is_empty() {
            println!("skipped: /sys is not mounted here");
            return;
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), order.len(), "{order:?}");
    }
}

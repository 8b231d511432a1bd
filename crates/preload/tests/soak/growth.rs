//! Checks that a process does not grow: its private memory and its open descriptors.

use std::fs;

/// Growth of the peak between the halves of a run that counts as flat: a share of the first peak,
/// and kilobytes for allocators that keep freed memory.
const FACTOR: f64 = 1.1;
const MARGIN_KB: f64 = 16.0 * 1024.0;
/// The same for descriptors, of which a server opens some by demand.
const MARGIN_DESCRIPTORS: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Size {
    private_kb: u64,
    descriptors: usize,
}

/// Sizes of one process, in order of time.
pub struct Growth {
    process: i32,
    sizes: Vec<Size>,
}

impl Growth {
    pub fn of(process: i32) -> Self {
        Growth { process, sizes: Vec::new() }
    }

    /// Records the present size, unless the process has ended.
    pub fn record(&mut self) {
        let Ok(rollup) = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process)) else {
            return;
        };
        let kilobytes = |name: &str| -> u64 {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.unwrap_or_else(|| panic!("no {name} in\n{rollup}"))
        };
        let private_kb = kilobytes("Private_Dirty:") + kilobytes("Swap:");
        let Ok(descriptors) = fs::read_dir(format!("/proc/{}/fd", self.process)) else { return };
        self.sizes.push(Size { private_kb, descriptors: descriptors.count() });
    }

    /// Checks that the second half's peak is no higher than the first's, but for a margin. Ignores
    /// the first tenth, in which the process starts.
    pub fn is_flat(&self) {
        let sizes = &self.sizes[self.sizes.len() / 10..];
        assert!(sizes.len() >= 8, "only {} sizes", sizes.len());
        let (first, second) = sizes.split_at(sizes.len() / 2);
        let peak = |half: &[Size]| Size {
            private_kb: half.iter().map(|size| size.private_kb).max().unwrap_or(0),
            descriptors: half.iter().map(|size| size.descriptors).max().unwrap_or(0),
        };
        let (first, second) = (peak(first), peak(second));
        println!("peaks of the halves: {first:?}, {second:?}");
        let limit = first.private_kb as f64 * FACTOR + MARGIN_KB;
        assert!(second.private_kb as f64 <= limit, "memory grew: {:#?}", self.sizes);
        assert!(
            second.descriptors <= first.descriptors + MARGIN_DESCRIPTORS,
            "descriptors grew: {:#?}",
            self.sizes
        );
    }
}

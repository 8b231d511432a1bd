//! The places in the code that touch a word most often.

use serde::{Deserialize, Serialize};

/// Places tracked per word, separately for reads and writes.
const MOST_PLACES: usize = 4;

/// A place in the code, with the number of sections that touched a word there first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceCount {
    /// The place, as numbered in [`Access`](unconvoy_trace_stream::Access).
    pub place: u32,
    /// Sections in samples with a conflict on the word. An upper bound if the word has more than
    /// four places.
    pub sections: u64,
}

/// The most frequent places, by the space-saving algorithm: a new place replaces the rarest and
/// inherits its count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    places: [(u32, u64); MOST_PLACES],
}

impl Places {
    pub fn add(&mut self, place: u32) {
        if place == 0 {
            return;
        }
        let known = self.places.iter_mut().find(|(known, count)| *known == place && *count > 0);
        let slot = match known {
            Some(slot) => slot,
            None => self
                .places
                .iter_mut()
                .min_by_key(|(_, count)| *count)
                .expect("MOST_PLACES is not 0"),
        };
        *slot = (place, slot.1 + 1);
    }

    pub fn sorted(&self) -> Vec<PlaceCount> {
        let known = self.places.iter().filter(|(_, count)| *count > 0);
        let mut places: Vec<_> = known
            .map(|(place, sections)| PlaceCount { place: *place, sections: *sections })
            .collect();
        places.sort_unstable_by_key(|place| (std::cmp::Reverse(place.sections), place.place));
        places
    }
}

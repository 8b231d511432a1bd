//! The options of `--continuous`: how often to write a profile, and how many to keep.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::duration;
use crate::messages::profile as messages;

/// Range of the interval.
const INTERVAL: RangeInclusive<f64> = 1.0..=86_400.0;

/// Which of the profiles stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The last ones, at most this number.
    Files(usize),
    /// The last ones, at most this number of bytes.
    Bytes(u64),
}

/// A request for one profile per interval.
#[derive(Debug, Clone)]
pub struct Intervals {
    pub interval: Duration,
    pub to: PathBuf,
    pub keep: Keep,
    /// Value of the label `service`; the program's name if there is none.
    pub service: Option<String>,
}

/// Parses a time such as `60s`, `5m` or `90`.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds = duration::seconds(text).filter(|seconds| INTERVAL.contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| messages::wrong_interval().to_string())
}

/// Parses a number of files, or of bytes such as `500M`.
pub fn keep(text: &str) -> Result<Keep, String> {
    let (number, unit) = split(text);
    let factor = match unit.trim_end_matches(['B', 'b']) {
        _ if unit.is_empty() => None,
        "" => Some(1.0),
        "k" | "K" => Some(1e3),
        "M" => Some(1e6),
        "G" => Some(1e9),
        _ => return Err(messages::wrong_bound().to_string()),
    };
    let number = number.filter(|number| *number >= 1.0);
    let number = number.ok_or_else(|| messages::wrong_bound().to_string())?;
    Ok(match factor {
        None => Keep::Files(number as usize),
        Some(factor) => Keep::Bytes((number * factor) as u64),
    })
}

/// The number at the start of a text, and the rest.
fn split(text: &str) -> (Option<f64>, &str) {
    let end = text.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

/// Removes the oldest profiles of a directory beyond the bound. Other files stay.
pub fn rotate(folder: &Path, keep: Keep) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf, u64)> = entries
        .filter_map(|entry| {
            let time = time_of(&entry.file_name().to_string_lossy())?;
            Some((time, entry.path(), entry.metadata().ok()?.len()))
        })
        .collect();
    found.sort();
    let mut files = found.len();
    let mut bytes: u64 = found.iter().map(|(_, _, length)| length).sum();
    for (_, path, length) in found {
        let is_kept = match keep {
            Keep::Files(most) => files <= most,
            Keep::Bytes(most) => bytes <= most,
        };
        if is_kept {
            break;
        }
        let _ = std::fs::remove_file(path);
        files -= 1;
        bytes -= length;
    }
}

/// The name of a profile: service, process and the end of the interval in milliseconds since 1970.
pub fn file_name(service: &str, pid: u32, end_ms: u64) -> String {
    let service: String =
        service.chars().map(|one| if one == '/' || one.is_control() { '_' } else { one }).collect();
    format!("{service}.{pid}.{end_ms:013}.pb.gz")
}

/// The time in the name of a profile; `None` for another file.
fn time_of(name: &str) -> Option<u64> {
    let mut parts = name.strip_suffix(".pb.gz")?.rsplit('.');
    let time = parts.next().filter(|time| time.len() == 13)?.parse().ok()?;
    parts.next()?.parse::<u32>().ok()?;
    parts.next().map(|_| time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_bounds_have_units() {
        assert_eq!(interval("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(interval("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(interval("1h"), interval("3600"));
        assert_eq!(keep("24"), Ok(Keep::Files(24)));
        assert_eq!(keep("1.5MB"), Ok(Keep::Bytes(1_500_000)));
        assert_eq!(keep("10B"), Ok(Keep::Bytes(10)));
        for wrong in ["", "0s", "60 s", "s", "1d", "-5", "1e9", "25h"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "5X", "MB", "-1"] {
            assert!(keep(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rotation_removes_oldest_profiles_only() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(folder.path().join(name), [0; 100]).unwrap();
        (1..=5).for_each(|time| write(&file_name("a.b/c", 7, time)));
        ["other.pb.gz", "notes.txt", "x.1.pb.gz"].into_iter().for_each(write);
        let names = || {
            let entries = std::fs::read_dir(folder.path()).unwrap().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            let mut names: Vec<_> = names.filter(|name| name.starts_with("a.b_c.7.")).collect();
            names.sort();
            names
        };
        rotate(folder.path(), Keep::Files(4));
        assert_eq!(names().len(), 4);
        rotate(folder.path(), Keep::Bytes(250));
        assert_eq!(names(), [file_name("a.b_c", 7, 4), file_name("a.b_c", 7, 5)]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
    }
}

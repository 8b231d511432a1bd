//! The sensor that a user chooses, and the fallback if it is unavailable.

use super::bpf::{self, Bpf};
use super::fixed::Fixed;
use super::loadavg::LoadAverage;
use super::psi::Pressure;
use super::schedstat::Schedstat;
use crate::load::sensor::{Reading, Sensor};
use crate::runtime::messages;

/// Largest capacity of a fixed target.
const MOST_PROCESSORS: f64 = 65_536.0;

/// Set in the word of a choice without a number. The bit is the sign of a number, and capacities
/// are positive.
const WITHOUT_NUMBER: u64 = 1 << 63;

/// A sensor, by its name in [`SENSOR`](crate::catalogue::SENSOR).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Choice {
    /// Run and run-queue times of every thread.
    #[default]
    Schedstat,
    /// The machine's number of runnable threads.
    LoadAverage,
    /// Pressure stall information.
    Pressure,
    /// The kernel's count of runnable threads.
    Bpf,
    /// Run and run-queue times against a capacity of this many processors.
    Fixed(f64),
}

impl Choice {
    /// The choices without a number, the default first.
    const NAMED: &[Choice] =
        &[Choice::Schedstat, Choice::LoadAverage, Choice::Pressure, Choice::Bpf];

    /// The word of the default.
    pub(in crate::runtime) const DEFAULT_WORD: u64 = WITHOUT_NUMBER;

    /// Parses a sensor's name. Does not allocate.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(named) = Self::NAMED.iter().find(|choice| choice.name() == text) {
            return Some(*named);
        }
        let processors: f64 = text.strip_prefix("fixed:")?.parse().ok()?;
        (processors > 0.0 && processors <= MOST_PROCESSORS).then_some(Choice::Fixed(processors))
    }

    /// The choice as one word, for an atomic.
    pub(in crate::runtime) fn to_word(self) -> u64 {
        if let Choice::Fixed(processors) = self {
            return processors.to_bits();
        }
        let index = Self::NAMED.iter().position(|choice| *choice == self).unwrap_or_default();
        WITHOUT_NUMBER | index as u64
    }

    /// The choice that [`to_word`](Self::to_word) made `word` of.
    pub(in crate::runtime) fn from_word(word: u64) -> Self {
        if word & WITHOUT_NUMBER == 0 {
            return Choice::Fixed(f64::from_bits(word));
        }
        Self::NAMED.get((word & !WITHOUT_NUMBER) as usize).copied().unwrap_or_default()
    }

    /// The sensor's name in the catalogue.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Schedstat => "schedstat",
            Choice::LoadAverage => "loadavg",
            Choice::Pressure => "psi",
            Choice::Bpf => "bpf",
            Choice::Fixed(_) => "fixed:N",
        }
    }

    /// Why the sensor is unavailable and what to do about it; `None` if it is available.
    pub fn missing(self) -> Option<&'static str> {
        let why = match self {
            Choice::Schedstat | Choice::Fixed(_) => return None,
            Choice::LoadAverage => messages::NO_LOAD_AVERAGE,
            Choice::Pressure => messages::NO_PRESSURE,
            Choice::Bpf => messages::NO_COUNT,
        };
        Chosen::open(self, false, 0).is_none().then_some(why)
    }
}

/// A sensor of any kind.
#[allow(clippy::large_enum_variant)] // a single value, on the controller's stack
enum Chosen {
    Schedstat(Schedstat),
    LoadAverage(LoadAverage),
    Pressure(Pressure),
    Bpf(Bpf),
    Fixed(Fixed),
}

impl Chosen {
    /// Opens the sensor; `None` if it is unavailable.
    fn open(choice: Choice, keep_open: bool, own_thread: u32) -> Option<Self> {
        let schedstat = || Schedstat::new(keep_open, own_thread);
        match choice {
            Choice::Schedstat => Some(Chosen::Schedstat(schedstat())),
            Choice::LoadAverage => {
                LoadAverage::open(keep_open, own_thread).map(Chosen::LoadAverage)
            }
            Choice::Pressure => Pressure::open(keep_open, own_thread).map(Chosen::Pressure),
            Choice::Bpf => Bpf::open(own_thread).map(Chosen::Bpf),
            Choice::Fixed(processors) => Some(Chosen::Fixed(Fixed::new(processors, schedstat()))),
        }
    }

    fn get(&mut self) -> &mut dyn Sensor {
        match self {
            Chosen::Schedstat(sensor) => sensor,
            Chosen::LoadAverage(sensor) => sensor,
            Chosen::Pressure(sensor) => sensor,
            Chosen::Bpf(sensor) => sensor,
            Chosen::Fixed(sensor) => sensor,
        }
    }
}

/// The chosen sensor, or `schedstat` after it has failed.
pub struct ChosenSensor {
    choice: Choice,
    sensor: Chosen,
    keep_open: bool,
    own_thread: u32,
}

impl ChosenSensor {
    /// The sensor of `choice` if available, else `schedstat`. For `keep_open` and `own_thread` see
    /// [`Schedstat::new`].
    pub fn new(choice: Choice, keep_open: bool, own_thread: u32) -> Self {
        let (choice, sensor) = match Chosen::open(choice, keep_open, own_thread) {
            Some(sensor) => (choice, sensor),
            None => (Choice::Schedstat, Chosen::Schedstat(Schedstat::new(keep_open, own_thread))),
        };
        ChosenSensor { choice, sensor, keep_open, own_thread }
    }

    /// The sensor in use.
    pub fn choice(&self) -> Choice {
        self.choice
    }
}

impl Sensor for ChosenSensor {
    fn begin(&mut self, now: u64) {
        self.sensor.get().begin(now);
    }

    fn read(&mut self, now: u64) -> Option<Reading> {
        let reading = self.sensor.get().read(now);
        let is_dead = match &self.sensor {
            Chosen::Bpf(sensor) if sensor.is_dead() => {
                bpf::forget();
                true
            }
            Chosen::Pressure(sensor) => sensor.is_dead(),
            _ => false,
        };
        if is_dead {
            *self = Self::new(Choice::Schedstat, self.keep_open, self.own_thread);
            self.begin(now);
        }
        reading
    }

    fn expect_asleep(&mut self, thread: u32, slot: u32) {
        self.sensor.get().expect_asleep(thread, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::SENSOR;

    #[test]
    fn parse_of_every_catalogue_name_succeeds() {
        for entry in SENSOR {
            let text = entry.name.replace('N', "1.5");
            let choice = Choice::parse(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(choice.name(), entry.name);
        }
        assert_eq!(Choice::parse(SENSOR[0].name), Some(Choice::default()));
    }

    /// The controller keeps the word.
    #[test]
    fn word_of_every_catalogue_name_is_read_back() {
        for entry in SENSOR {
            let choice = Choice::parse(&entry.name.replace('N', "1.5")).expect(entry.name);
            assert_eq!(Choice::from_word(choice.to_word()), choice);
        }
        assert_eq!(Choice::from_word(Choice::DEFAULT_WORD), Choice::default());
    }

    #[test]
    fn parse_of_fixed_without_valid_number_is_none() {
        assert_eq!(Choice::parse("fixed:3"), Some(Choice::Fixed(3.0)));
        for wrong in [
            "",
            "fixed",
            "fixed:",
            "fixed:0",
            "fixed:-1",
            "fixed:x",
            "fixed:inf",
            "fixed:nan",
            "fixed:1e9",
        ] {
            assert_eq!(Choice::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn unavailable_sensor_falls_back_to_schedstat() {
        let mut sensor = ChosenSensor::new(Choice::Bpf, false, 0);
        assert_eq!(sensor.choice(), Choice::Schedstat);
        assert!(Choice::Bpf.missing().is_some_and(|why| why.contains("unconvoy run")));
        sensor.begin(1);
        assert_eq!(Choice::Schedstat.missing(), None);
    }

    #[test]
    fn fixed_target_is_reported_as_capacity() {
        let mut sensor = ChosenSensor::new(Choice::Fixed(7.5), false, 0);
        sensor.begin(1);
        match sensor.read(1_000_000) {
            Some(reading) => assert_eq!(reading.capacity, 7.5),
            None => println!("skipped: /proc/self/task/*/schedstat cannot be read here"),
        }
    }
}

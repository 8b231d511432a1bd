//! The sensor that a user names, and what takes its place where it cannot be had.

use super::bpf::{self, Bpf};
use super::fixed::Fixed;
use super::loadavg::LoadAverage;
use super::psi::Pressure;
use super::schedstat::Schedstat;
use crate::load::sensor::{Reading, Sensor};

/// The largest capacity that a fixed target may have.
const MOST_PROCESSORS: f64 = 65_536.0;

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
    /// The kernel's own count.
    Bpf,
    /// Run and run-queue times, against a capacity of so many processors.
    Fixed(f64),
}

impl Choice {
    /// What `text` names. Allocates nothing.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "schedstat" => Some(Choice::Schedstat),
            "loadavg" => Some(Choice::LoadAverage),
            "psi" => Some(Choice::Pressure),
            "bpf" => Some(Choice::Bpf),
            _ => {
                let processors: f64 = text.strip_prefix("fixed:")?.parse().ok()?;
                (processors > 0.0 && processors <= MOST_PROCESSORS).then_some(Choice::Fixed(processors))
            }
        }
    }

    /// Its name in the catalogue.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Schedstat => "schedstat",
            Choice::LoadAverage => "loadavg",
            Choice::Pressure => "psi",
            Choice::Bpf => "bpf",
            Choice::Fixed(_) => "fixed:N",
        }
    }

    /// Cause and remedy where it cannot be had, else nothing.
    pub fn missing(self) -> Option<&'static str> {
        let why = match self {
            Choice::Schedstat | Choice::Fixed(_) => return None,
            Choice::LoadAverage => {
                "/proc/loadavg cannot be read (mount /proc), so there is no loadavg sensor; using schedstat"
            }
            Choice::Pressure => {
                "/proc/pressure/cpu cannot be read (boot a kernel that has it with psi=1), so there is no psi sensor; using schedstat"
            }
            Choice::Bpf => {
                "nobody counts for this program (start it by unconvoy run --sensor bpf), so there is no bpf sensor; using schedstat"
            }
        };
        Chosen::open(self, false, 0).is_none().then_some(why)
    }
}

/// A sensor of whichever kind.
#[allow(clippy::large_enum_variant)] // one, on the controller's stack
enum Chosen {
    Schedstat(Schedstat),
    LoadAverage(LoadAverage),
    Pressure(Pressure),
    Bpf(Bpf),
    Fixed(Fixed),
}

impl Chosen {
    /// `None` where it cannot be had.
    fn open(choice: Choice, keep_open: bool, own_thread: u32) -> Option<Self> {
        let schedstat = || Schedstat::new(keep_open, own_thread);
        match choice {
            Choice::Schedstat => Some(Chosen::Schedstat(schedstat())),
            Choice::LoadAverage => LoadAverage::open(keep_open, own_thread).map(Chosen::LoadAverage),
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

/// The chosen sensor, and `schedstat` once that one is no more.
pub struct ChosenSensor {
    choice: Choice,
    sensor: Chosen,
    keep_open: bool,
    own_thread: u32,
}

impl ChosenSensor {
    /// The sensor of `choice` if it can be had, else `schedstat`. For `keep_open` and `own_thread`
    /// see [`Schedstat::new`].
    pub fn new(choice: Choice, keep_open: bool, own_thread: u32) -> Self {
        let (choice, sensor) = match Chosen::open(choice, keep_open, own_thread) {
            Some(sensor) => (choice, sensor),
            None => (Choice::Schedstat, Chosen::Schedstat(Schedstat::new(keep_open, own_thread))),
        };
        ChosenSensor { choice, sensor, keep_open, own_thread }
    }

    /// What it is now.
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
        if let Chosen::Bpf(sensor) = &self.sensor
            && sensor.is_dead()
        {
            bpf::forget();
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
    fn every_name_of_the_catalogue_is_a_choice() {
        for entry in SENSOR {
            let text = entry.name.replace('N', "1.5");
            let choice = Choice::parse(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(choice.name(), entry.name);
        }
        assert_eq!(Choice::parse(SENSOR[0].name), Some(Choice::default()));
    }

    #[test]
    fn a_fixed_target_is_a_number_of_processors() {
        assert_eq!(Choice::parse("fixed:3"), Some(Choice::Fixed(3.0)));
        for wrong in ["", "fixed", "fixed:", "fixed:0", "fixed:-1", "fixed:x", "fixed:inf", "fixed:nan", "fixed:1e9"] {
            assert_eq!(Choice::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_schedstat() {
        let mut sensor = ChosenSensor::new(Choice::Bpf, false, 0);
        assert_eq!(sensor.choice(), Choice::Schedstat);
        assert!(Choice::Bpf.missing().is_some_and(|why| why.contains("unconvoy run")));
        sensor.begin(1);
        assert_eq!(Choice::Schedstat.missing(), None);
    }

    #[test]
    fn a_fixed_target_is_the_capacity() {
        let mut sensor = ChosenSensor::new(Choice::Fixed(7.5), false, 0);
        sensor.begin(1);
        match sensor.read(1_000_000) {
            Some(reading) => assert_eq!(reading.capacity, 7.5),
            None => println!("skipped: /proc/self/task/*/schedstat cannot be read here"),
        }
    }
}

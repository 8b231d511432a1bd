//! `sensor`: cost of one reading of the load, and of the controller that reads it.

mod count;
mod reading;
mod share;

use anyhow::bail;
use clap::Args;
use serde_json::json;
use unconvoy::load::settings;
use unconvoy::runtime::sensor::choice::Choice;
use unconvoy_measure::arguments::threads;
use unconvoy_measure::record::Record;

use crate::messages;
use crate::options::Common;
use crate::process;

/// Longest time between two readings: a second.
const LONGEST_INTERVAL_NS: u64 = 1_000_000_000;

/// Options of `sensor`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Sensors to read; bpf needs `unconvoy run --sensor bpf` around this command
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "schedstat",
          value_parser = sensor)]
    sensors: Vec<Choice>,
    /// Numbers of sleeping threads that the sensor reads
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,64,256,1024",
          value_parser = threads)]
    threads: Vec<u32>,
    /// Number of readings of each kind per round
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    readings: u32,
    /// Time between two readings, in nanoseconds (the controller's interval by default)
    #[arg(long, value_name = "NS", default_value_t = settings::INTERVAL_NS,
          value_parser = clap::value_parser!(u64).range(..=LONGEST_INTERVAL_NS))]
    interval: u64,
    /// Number of contending threads while the controller's share is measured
    #[arg(long, value_name = "N", default_value = "64", value_parser = threads)]
    contenders: u32,
}

fn sensor(text: &str) -> Result<Choice, String> {
    Choice::parse(text).ok_or_else(|| messages::unknown_sensor().to_string())
}

/// Measures, prints and writes the record.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let common = &options.common;
    let parameters = json!({
        "sensors": options.sensors.iter().map(|sensor| sensor.name()).collect::<Vec<_>>(),
        "threads": options.threads, "readings": options.readings, "interval_ns": options.interval,
        "contenders": options.contenders, "seconds": common.seconds, "runs": common.runs(),
    });
    let mut record = common.begin("sensor", parameters)?;
    count::adopt()?;
    if let Some(why) = options.sensors.iter().find_map(|sensor| sensor.missing()) {
        let cause = why.split(';').next().unwrap_or(why); // the rest is advice for programs
        bail!(messages::sensor_not_available(cause));
    }
    let files = process::raise_file_limit()?;

    let cells = reading::cells(&options.sensors, &options.threads);
    let readings = common.interleave(&mut record, &cells, reading::Cell::name, |cell| {
        reading::measure(cell, options.readings, options.interval)
    })?;
    record.judgements.push(reading::judge(&cells, &readings));
    record.tables.push(reading::table(&cells, &readings));
    record.notes.push(format!(
        "Up to {files} descriptors may be open: the limit was raised for the readings. All \
         sleeping threads are read; none sleeps in a slot."
    ));

    if record.ended_by.is_none() {
        let cells = [options.contenders];
        let name = |count: &u32| format!("the controller beside {count} contending threads");
        let measure = |&count: &u32| share::measure(count, common.seconds);
        let shares = common.interleave(&mut record, &cells, name, measure)?;
        record.judgements.push(share::judge(options.contenders, &shares));
        record.tables.push(share::table(&shares));
    }
    record.finish(common.out.as_deref())
}

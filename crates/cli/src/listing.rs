//! `unconvoy locks`: what `--lock`, `--load` and `--sensor` accept.

use comfy_table::{ContentArrangement, Table, presets};
use unconvoy::catalogue::{CONTENTION, Entry, LOAD, SENSOR};

/// Both halves of the catalogue, how to name a pair, and the sensors.
pub fn locks() -> String {
    format!(
        "Contention managers (--lock): the order in which waiters get the lock\n{}\n\n\
         Load managers (--load): which waiters leave the processor, and when\n{}\n\n\
         Every pair is a lock; `compare --locks` names it LOCK+LOAD, as in {}+{}.\n\n\
         Sensors of load control (--sensor): what it reads the load from\n{}\n",
        table("lock", CONTENTION),
        table("load", LOAD),
        CONTENTION[0].name,
        LOAD[0].name,
        table("sensor", SENSOR)
    )
}

fn table(title: &str, entries: &[Entry]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([title, "what it does"]);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(console::Term::stdout().size_checked().map_or(100, |(_, columns)| columns));
    for entry in entries {
        table.add_row([entry.name, entry.summary]);
    }
    table
}

//! `unconvoy locks`: the names that `--lock`, `--load`, `--policy` and `--sensor` accept.

use comfy_table::{ContentArrangement, Table, presets};
use unconvoy::catalogue::{Availability, CONTENTION, Entry, LOAD, POLICY, SENSOR, availability};

/// Renders the catalogue and the notation for a pair.
pub fn locks() -> String {
    format!(
        "Contention managers (--lock): the order in which waiters get the lock\n{}\n\n\
         Load managers (--load): which waiters leave the processor, and when\n{}\n\n\
         Policies (--policy): how the load controller sets the number of waiters that sleep\n{}\n\n\
         Sensors (--sensor): what the load controller reads the load from\n{}\n\n\
         Every pair is a lock; `compare --locks` names it LOCK+LOAD, as in {}+{}.\n",
        table("lock", CONTENTION),
        table("load", LOAD),
        table("policy", POLICY),
        table("sensor", SENSOR),
        CONTENTION[0].name,
        LOAD[0].name
    )
}

fn table(title: &str, entries: &[Entry]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([title, "what it does"]);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(console::Term::stdout().size_checked().map_or(100, |(_, columns)| columns));
    for entry in entries {
        table.add_row([entry.name, &with_availability(entry)]);
    }
    table
}

/// Returns what the entry does, and any limits on this machine.
fn with_availability(entry: &Entry) -> String {
    match availability(entry.name) {
        Availability::Full => entry.summary.to_string(),
        Availability::Reduced(reason) => format!("{}\nOn this machine: {reason}", entry.summary),
        Availability::Refused(reason) => {
            format!("{}\nNot available on this machine: {reason}", entry.summary)
        }
    }
}

//! The `unconvoy` command.

fn main() {}

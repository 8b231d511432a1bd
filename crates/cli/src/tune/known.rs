//! The configurations and algorithms that a search tries, as tables.

/// A configuration of the whole process.
pub struct Named {
    pub name: &'static str,
    pub keys: &'static [(&'static str, &'static str)],
    pub why: &'static str,
    /// Whether it suits long sections better than short ones.
    pub is_for_long: bool,
    pub needs: Needs,
}

/// The machine or program that a configuration needs.
#[derive(PartialEq)]
pub enum Needs {
    Nothing,
    /// Hardware transactions.
    Transactions,
    /// As many processors as threads: its waiters never leave the processor.
    ProcessorPerThread,
    /// More than one processor.
    SeveralProcessors,
}

const fn named(
    name: &'static str,
    keys: &'static [(&'static str, &'static str)],
    why: &'static str,
) -> Named {
    Named { name, keys, why, is_for_long: false, needs: Needs::Nothing }
}

/// The configurations, simplest first, and else by how often one of their family was the best in
/// the grids (docs/evaluation/grids.md). Left out are those that another one of the list equals or
/// beats everywhere there.
pub const NAMED: [Named; 15] = [
    named("libc", &[("lock", "libc")], "the locks that the program has without unconvoy"),
    named("default", &[], "unconvoy's default"),
    Named {
        needs: Needs::Transactions,
        ..named(
            "elided",
            &[("lock", "elided")],
            "sections without conflicts run in parallel, as transactions",
        )
    },
    Named {
        is_for_long: true,
        ..named("loiter+park", &[("load", "park")], "waiters sleep after 10 us of polling")
    },
    Named {
        is_for_long: true,
        ..named("futex+none", &[("lock", "futex"), ("load", "none")], "waiters sleep at once")
    },
    Named {
        needs: Needs::ProcessorPerThread,
        ..named("loiter+none", &[("load", "none")], "waiters never sleep")
    },
    named("ttas+control", &[("lock", "ttas")], "no queue: the fastest waiter gets the lock"),
    named(
        "clh+yield",
        &[("lock", "clh"), ("load", "yield")],
        "a queue whose waiters yield their processor",
    ),
    named(
        "tas+yield",
        &[("lock", "tas"), ("load", "yield")],
        "the fastest waiter, without backoff",
    ),
    Named {
        is_for_long: true,
        ..named("futex+park", &[("lock", "futex"), ("load", "park")], "waiters poll, then sleep")
    },
    named("loiter+yield", &[("load", "yield")], "waiters yield their processor"),
    named("loiter+adaptive", &[("load", "adaptive")], "waiters spin as long as spinning paid off"),
    named("tpmcs+control", &[("lock", "tpmcs")], "the lock goes to the first who came"),
    named("loiter+malthus", &[("load", "malthus")], "few threads contend, the others sleep"),
    Named {
        needs: Needs::SeveralProcessors,
        ..named("default+confine", &[("confine", "refined")], "waiting threads share few cores")
    },
];

/// An algorithm for single locks.
pub struct Algorithm {
    pub name: &'static str,
    pub keys: &'static [(&'static str, &'static str)],
    pub why: &'static str,
}

/// Algorithms for a lock with long sections, likeliest first.
pub const FOR_LONG: [Algorithm; 3] = [
    Algorithm {
        name: "libc",
        keys: &[("lock", "libc")],
        why: "waiters for a lock that is held for long should sleep at once",
    },
    Algorithm {
        name: "futex+none",
        keys: &[("lock", "futex"), ("load", "none")],
        why: "waiters for a lock that is held for long should sleep at once",
    },
    Algorithm {
        name: "loiter+park",
        keys: &[("lock", "loiter"), ("load", "park")],
        why: "waiters for a lock that is held for long should sleep soon",
    },
];

/// Algorithms for a lock with short sections, likeliest first.
pub const FOR_SHORT: [Algorithm; 4] = [
    Algorithm {
        name: "elided",
        keys: &[("lock", "elided")],
        why: "sections without conflicts run in parallel, as transactions",
    },
    Algorithm {
        name: "default",
        keys: &[("lock", "default"), ("load", "default")],
        why: "the lock is free again before a waiter could fall asleep",
    },
    Algorithm {
        name: "ttas+control",
        keys: &[("lock", "ttas")],
        why: "the next thread takes the lock without a queue",
    },
    Algorithm {
        name: "loiter+park",
        keys: &[("load", "park")],
        why: "waiters that sleep leave their processors to the others",
    },
];

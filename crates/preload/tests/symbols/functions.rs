//! Which functions of libc the library defines: what the symbols are compared with, and what the
//! table in docs/reference/pthread.md is generated from.

use std::collections::BTreeSet;

/// Whose code a call of a function runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The library's.
    TakenOver,
    /// libc's, decided from the attributes in the object.
    HandedOver,
    /// libc's, called by the library's, which adds something; the field says what.
    Called(&'static str),
    /// libc's: the library does not define the function.
    LeftAlone,
}

/// Some functions, for some of their arguments.
pub struct Row {
    /// Names as a shell writes them, `{a,b}` and `*` included. Empty: those of the row before.
    pub names: &'static [&'static str],
    /// For which arguments.
    pub which: &'static str,
    /// Whose code runs then.
    pub whose: Whose,
    /// Why.
    pub why: &'static str,
}

use Whose::{Called, HandedOver, LeftAlone, TakenOver};

/// All rows.
pub const ROWS: &[Row] = &[
    Row {
        names: &["pthread_mutex_{lock,trylock,timedlock,clocklock,unlock,destroy}"],
        which: "normal, default, adaptive, recursive, error-checking",
        whose: TakenOver,
        why: "",
    },
    Row {
        names: &[],
        which: "process-shared, robust, priority-inheriting, priority-protecting",
        whose: HandedOver,
        why: "the kernel takes part in them, or another process that may not have the library",
    },
    Row {
        names: &["pthread_{mutex,cond,rwlock}_init"],
        which: "",
        whose: Called(""),
        why: "libc checks the attributes and writes the kind where everybody looks for it",
    },
    Row {
        names: &["pthread_cond_{wait,timedwait,clockwait,signal,broadcast,destroy}"],
        which: "private",
        whose: TakenOver,
        why: "a condition variable must release the mutex that waiters hold, and only this library can",
    },
    Row {
        names: &[],
        which: "process-shared",
        whose: HandedOver,
        why: "unless waited on with a mutex of this library: such a mutex is private to the process, so all \
              waiters are",
    },
    Row {
        names: &[
            "pthread_rwlock_{rd,wr,tryrd,trywr,timedrd,timedwr,clockrd,clockwr}lock",
            "pthread_rwlock_{unlock,destroy}",
        ],
        which: "private",
        whose: TakenOver,
        why: "readers share; both preferences of glibc's attribute",
    },
    Row { names: &[], which: "process-shared", whose: HandedOver, why: "as mutexes" },
    Row {
        names: &["pthread_spin_{lock,trylock,unlock}"],
        which: "",
        whose: TakenOver,
        why: "load control for their waiters; the word keeps libc's values, so that `pthread_spin_init`, other \
              processes and libc itself understand it",
    },
    Row { names: &["pthread_spin_{init,destroy}"], which: "", whose: LeftAlone, why: "the word keeps libc's values" },
    Row {
        names: &[
            "__pthread_mutex_{lock,trylock,unlock,destroy}",
            "__pthread_rwlock_{rdlock,wrlock,tryrdlock,trywrlock,unlock,destroy}",
        ],
        which: "",
        whose: Called("as the standard names"),
        why: "old C++ libraries call these on the same objects",
    },
    Row {
        names: &["set{u,g,eu,eg,reu,reg,resu,resg}id", "setgroups", "initgroups"],
        which: "",
        whose: Called("without a load controller"),
        why: "libc changes the credentials of the threads that it knows; it does not know the controller, which \
              would keep the old ones",
    },
    Row {
        names: &["unshare", "setns"],
        which: "",
        whose: Called("without a load controller"),
        why: "the kernel grants some namespaces only to a process with one thread",
    },
    Row {
        names: &["prctl"],
        which: "`PR_SET_NO_NEW_PRIVS` and `PR_SET_SECCOMP`",
        whose: Called("without a load controller from then on"),
        why: "a filter of system calls may kill for those that the controller makes",
    },
    Row { names: &[], which: "every other option", whose: Called(""), why: "" },
    Row {
        names: &["sched_{get,set}affinity", "pthread_{get,set}affinity_np"],
        which: "",
        whose: Called("under `--confine` with the program's own masks"),
        why: "the library sets masks there ([`--confine`](confine.md))",
    },
    Row {
        names: &["pthread_create", "exec{l,lp,le,v,vp,ve,vpe,veat}", "fexecve", "posix_spawn{,p}", "system", "popen"],
        which: "",
        whose: Called("under `--confine` with the user's mask"),
        why: "a thread or program that begins inherits the mask",
    },
    Row {
        names: &["pthread_barrier_*", "pthread_once", "sem_*"],
        which: "",
        whose: LeftAlone,
        why: "they block by design; there is nobody to overtake",
    },
    Row {
        names: &["mtx_*", "cnd_*"],
        which: "",
        whose: LeftAlone,
        why: "inside libc they are consistent with each other",
    },
    Row {
        names: &["pthread_*attr_*", "pthread_mutex_{consistent,getprioceiling,setprioceiling}"],
        which: "",
        whose: LeftAlone,
        why: "they act on attributes, or on mutexes that were handed over",
    },
];

/// Every name that `pattern` stands for.
fn expanded(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (choices, after) = rest.split_once('}').expect("a brace closes");
    choices.split(',').flat_map(|choice| expanded(&format!("{before}{choice}{after}"))).collect()
}

/// The names of all rows that say `is_wanted`; a `*` stays.
fn names(is_wanted: impl Fn(Whose) -> bool) -> BTreeSet<String> {
    let rows = ROWS.iter().filter(|row| is_wanted(row.whose));
    rows.flat_map(|row| row.names).flat_map(|pattern| expanded(pattern)).collect()
}

/// What the library defines.
pub fn defined() -> BTreeSet<String> {
    names(|whose| whose != LeftAlone)
}

/// Whether the table says of the function `name` that the library does not define it.
pub fn is_left_alone(name: &str) -> bool {
    let is_it = |pattern: &String| match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            let middle = tail.trim_end_matches('*');
            name.strip_prefix(head).is_some_and(|rest| rest.contains(middle))
        }
    };
    names(|whose| whose == LeftAlone).iter().any(is_it)
}

/// The rows as the page shows them.
pub fn cells() -> impl Iterator<Item = [String; 3]> {
    ROWS.iter().map(|row| {
        let names: Vec<_> = row.names.iter().map(|name| format!("`{name}`")).collect();
        let names = if names.is_empty() { "the same".to_owned() } else { names.join(", ") };
        let which = if row.which.is_empty() { String::new() } else { format!(": {}", row.which) };
        let whose = match row.whose {
            TakenOver => "taken over".to_owned(),
            HandedOver => "handed over".to_owned(),
            Called("") => "libc's, called".to_owned(),
            Called(how) => format!("called, {how}"),
            LeftAlone => "left alone".to_owned(),
        };
        [names + &which, whose, row.why.to_owned()]
    })
}

//! The libc functions that the library defines: compared with the symbols, and the source of the
//! table in docs/reference/pthread.md.

use std::collections::BTreeSet;

/// The code that a call of a function runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The library's.
    TakenOver,
    /// libc's; the attributes in the object decide.
    HandedOver,
    /// libc's, called by the library with something added, which the field describes.
    Called(&'static str),
    /// libc's: the library does not define the function.
    LeftAlone,
}

/// Some functions, for some of their arguments.
pub struct Row {
    /// Names as in a shell, with `{a,b}` and `*`. Empty: the names of the previous row.
    pub names: &'static [&'static str],
    /// The arguments that the row applies to.
    pub which: &'static str,
    /// The code that runs.
    pub whose: Whose,
    /// The reason.
    pub why: &'static str,
}

use Whose::{Called, HandedOver, LeftAlone, TakenOver};

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
        why: "the kernel takes part, or another process, which may lack the library",
    },
    Row {
        names: &["pthread_{mutex,cond,rwlock}_init"],
        which: "",
        whose: Called(""),
        why: "libc checks the attributes and writes the kind where both libraries expect it",
    },
    Row {
        names: &["pthread_cond_{wait,timedwait,clockwait,signal,broadcast,destroy}"],
        which: "private",
        whose: TakenOver,
        why: "a wait must release the waiter's mutex, and only this library can",
    },
    Row {
        names: &[],
        which: "process-shared",
        whose: HandedOver,
        why: "taken over in private memory, after a wait with a mutex taken over; in shared \
              memory, such a wait ends after 10 ms at most, spuriously",
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
    Row { names: &[], which: "process-shared", whose: HandedOver, why: "as for mutexes" },
    Row {
        names: &["pthread_spin_{lock,trylock,unlock}"],
        which: "",
        whose: TakenOver,
        why: "load control for waiters; the word keeps libc's values",
    },
    Row {
        names: &["pthread_spin_{init,destroy}"],
        which: "",
        whose: LeftAlone,
        why: "the word keeps libc's values",
    },
    Row {
        names: &[
            "__pthread_mutex_{lock,trylock,unlock,destroy}",
            "__pthread_rwlock_{rdlock,wrlock,tryrdlock,trywrlock,unlock,destroy}",
        ],
        which: "",
        whose: Called("like the standard names"),
        why: "old C++ libraries call them on the same objects",
    },
    Row {
        names: &["set{u,g,eu,eg,reu,reg,resu,resg}id", "setgroups", "initgroups"],
        which: "",
        whose: Called("without a load controller"),
        why: "libc does not know the controller's thread, which would keep its old credentials",
    },
    Row {
        names: &["unshare", "setns"],
        which: "",
        whose: Called("without a load controller"),
        why: "the kernel grants some namespaces only to a single-threaded process",
    },
    Row {
        names: &["prctl"],
        which: "`PR_SET_NO_NEW_PRIVS` and `PR_SET_SECCOMP`",
        whose: Called("without a load controller from then on"),
        why: "a system-call filter may kill the process for the controller's calls",
    },
    Row { names: &[], which: "every other option", whose: Called(""), why: "" },
    Row {
        names: &["__register_frame{,_info,_info_bases,_table,_info_table,_info_table_bases}"],
        which: "",
        whose: Called("after the last call stack of a [profile](profile.md)"),
        why: "after such a call, libgcc's unwinder locks a mutex",
    },
    Row {
        names: &["dlclose"],
        which: "",
        whose: Called("between two readings of a [profile](profile.md)'s list of mapped files"),
        why: "another object may be loaded at the same addresses",
    },
    Row {
        names: &["sched_{get,set}affinity", "pthread_{get,set}affinity_np"],
        which: "",
        whose: Called("under `--confine` with the program's own masks"),
        why: "the library sets masks on the threads ([`--confine`](confine.md))",
    },
    Row {
        names: &[
            "pthread_create",
            "thrd_create",
            "exec{l,lp,le,v,vp,ve,vpe,veat}",
            "fexecve",
            "posix_spawn{,p}",
            "system",
            "popen",
        ],
        which: "",
        whose: Called("under `--confine` with the user's mask"),
        why: "a new thread or program inherits the mask",
    },
    Row {
        names: &["pthread_barrier_*", "pthread_once", "sem_*"],
        which: "",
        whose: LeftAlone,
        why: "they block by design",
    },
    Row {
        names: &["mtx_*", "cnd_*"],
        which: "",
        whose: LeftAlone,
        why: "they work only with each other, and libc serves both",
    },
    Row {
        names: &["pthread_*attr_*", "pthread_mutex_{consistent,getprioceiling,setprioceiling}"],
        which: "",
        whose: LeftAlone,
        why: "they act on attributes, or on mutexes handed over to libc",
    },
];

/// Expands the braces in `pattern`.
fn expanded(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (choices, after) = rest.split_once('}').expect("a brace closes");
    choices.split(',').flat_map(|choice| expanded(&format!("{before}{choice}{after}"))).collect()
}

/// The names in all rows for which `is_wanted` is true; a `*` stays.
fn names(is_wanted: impl Fn(Whose) -> bool) -> BTreeSet<String> {
    let rows = ROWS.iter().filter(|row| is_wanted(row.whose));
    rows.flat_map(|row| row.names).flat_map(|pattern| expanded(pattern)).collect()
}

/// The functions that the library defines.
pub fn defined() -> BTreeSet<String> {
    names(|whose| whose != LeftAlone)
}

/// Whether the table lists the function `name` as left alone.
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

/// The cells of the page's table.
pub fn cells() -> impl Iterator<Item = [String; 3]> {
    ROWS.iter().map(|row| {
        let names: Vec<_> = row.names.iter().map(|name| format!("`{name}`")).collect();
        let names = if names.is_empty() { "same functions".to_owned() } else { names.join(", ") };
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

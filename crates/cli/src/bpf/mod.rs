//! Has the kernel count the runnable threads of this process, and of the program that it becomes.
//!
//! `runnable.bpf.c` says how it counts, `runtime/sensor/bpf.rs` of the locks how the count is read. It is
//! loaded here and not in the program: it takes privilege, which a program that runs has no use for, and a loader that
//! finds where the running kernel has which field. The loader is aya: unlike libbpf it needs no library beside the
//! command (libelf), which so runs wherever it is copied.
//!
//! A process id outlives `exec`, and so do descriptors: the program inherits the map with the count, and the links that
//! keep the kernel counting. The interposer takes them over (`preload/src/tally.rs`). Nothing is pinned anywhere: with
//! the last of the descriptors, the kernel's side is gone.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use aya::maps::Map;
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::resource::{Resource, getrlimit};
use unconvoy::runtime::sensor::bpf::Count;

/// Empty where the command was built without clang.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/runnable.bpf.o"));

/// The programs, each named as the trace point that it is attached to.
const TRACE_POINTS: [&str; 3] = ["sched_switch", "sched_wakeup", "sched_wakeup_new"];

/// Descriptors that the program inherits: the map and the links.
const KEPT: RawFd = 1 + TRACE_POINTS.len() as RawFd;

/// Below this number they are, so that a program that uses `select` may have them; and as far up as that allows,
/// where they take none that a program counts on.
const BELOW: RawFd = 1024;

const PAGE: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4096).unwrap();

/// Has the kernel count for this process from here on; what the interposer is to be told of it.
///
/// # Errors
///
/// Says why not and what to do about it.
pub fn count_this_process() -> anyhow::Result<String> {
    ensure!(
        is_in_first_pid_namespace(),
        "the kernel knows this process by another id than itself does: run it outside of a PID namespace (a container)"
    );
    ensure!(!OBJECT.is_empty(), "this command was built without clang: install clang and build it again");
    let btf = Btf::from_sys_fs()
        .context("the kernel says nothing of its types: it takes /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)")?;
    let mut loaded = EbpfLoader::new().btf(Some(&btf)).allow_unsupported_maps().load(OBJECT).context(NO_PRIVILEGE)?;
    let links = attach(&mut loaded, &btf)?;
    let Some(Map::Array(map)) = loaded.map("count") else { bail!("the BPF object has no array named count") };
    let map = map.fd().as_fd();
    begin_to_count(map)?;
    keep(map, &links)
}

/// Whether process ids here are those that the kernel's side sees.
fn is_in_first_pid_namespace() -> bool {
    use std::os::unix::fs::MetadataExt;
    const FIRST: u64 = 0xEFFF_FFFC; // PROC_PID_INIT_INO of include/linux/proc_ns.h
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == FIRST)
}

const NO_PRIVILEGE: &str =
    "the kernel refuses the BPF program: it takes root, or CAP_BPF and CAP_PERFMON, on Linux 5.19 or later";

/// Loads and attaches every program; the links.
fn attach(loaded: &mut Ebpf, btf: &Btf) -> anyhow::Result<Vec<OwnedFd>> {
    let attach = |name: &&str| {
        let program = loaded.program_mut(name).with_context(|| format!("the BPF object has no program {name}"))?;
        let program: &mut BtfTracePoint = program.try_into()?;
        program.load(name, btf).with_context(|| format!("{NO_PRIVILEGE} ({name})"))?;
        open_link(program.fd()?.as_fd()).with_context(|| format!("cannot attach to {name}"))
    };
    TRACE_POINTS.iter().map(attach).collect()
}

/// Attaches a loaded program to its trace point. (The links that aya makes cannot be taken out of it.)
fn open_link(program: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    /// `union bpf_attr` of `include/uapi/linux/bpf.h`, for `BPF_RAW_TRACEPOINT_OPEN`: the name is the program's.
    #[repr(C)]
    struct RawTracePoint {
        name: u64,
        program: u32,
        padding: u32,
    }
    const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
    let attributes = RawTracePoint { name: 0, program: program.as_raw_fd().cast_unsigned(), padding: 0 };
    // SAFETY: the kernel reads the attributes, of which it is told the size.
    let link =
        unsafe { libc::syscall(libc::SYS_bpf, RAW_TRACEPOINT_OPEN, &raw const attributes, size_of::<RawTracePoint>()) };
    if link < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(link as RawFd) })
}

/// Enters this process's id into the map, and sees that its one thread is counted.
fn begin_to_count(map: BorrowedFd<'_>) -> anyhow::Result<()> {
    // SAFETY: a mapping at an address of the kernel's choice.
    let page = unsafe { mmap(None, PAGE, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, map, 0) }
        .context("cannot map the count")?;
    // SAFETY: longer than a `Count`, which consists of atomics, and mapped until the end of this function.
    let count: &Count = unsafe { page.cast().as_ref() };
    count.process.store(std::process::id(), Relaxed);
    // A sleep ends with a wake-up and a switch: from then on this thread is counted.
    let is_counted = (0..100).any(|_| {
        std::thread::sleep(Duration::from_micros(100));
        count.runnable.load(Relaxed) == 1
    });
    // SAFETY: mapped above, and `count` is not used again.
    unsafe { munmap(page, PAGE.get())? };
    ensure!(is_counted, "the kernel does not count: its trace points pass this process by");
    Ok(())
}

/// Moves the descriptors to where the program keeps them; what the interposer is to be told.
fn keep(map: BorrowedFd<'_>, links: &[OwnedFd]) -> anyhow::Result<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let below = RawFd::try_from(limit).map_or(BELOW, |limit| limit.min(BELOW));
    let kept = [map].into_iter().chain(links.iter().map(|link| link.as_fd()));
    let is_free = |first: RawFd| {
        // SAFETY: only asked for its flags.
        (first..first + KEPT).all(|number| fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_GETFD).is_err())
    };
    let first =
        (3..=below - KEPT).rev().find(|&first| is_free(first)).context("no descriptors are left: raise ulimit -n")?;
    for (number, descriptor) in (first..).zip(kept) {
        let moved = fcntl(descriptor, FcntlArg::F_DUPFD(number))?;
        // SAFETY: a new descriptor, which stays open on purpose.
        let moved = unsafe { OwnedFd::from_raw_fd(moved) };
        ensure!(moved.as_raw_fd() == number, "descriptor {number} was free and is not");
        fcntl(&moved, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let _ = moved.into_raw_fd();
    }
    Ok(format!("{}:{first}:{KEPT}", std::process::id()))
}

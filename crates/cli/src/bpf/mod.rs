//! Attaches the BPF program that counts the runnable threads of this process, and of the program
//! that replaces it.
//!
//! `runnable.bpf.c` describes the count; `runtime/sensor/bpf.rs` of the locks reads it. Loading the
//! BPF program takes a loader, which relocates field accesses for the running kernel, and a
//! privilege. The user's program should need neither, so the command loads the BPF program, with
//! aya. Unlike libbpf, aya needs no shared library (libelf), so the command runs wherever it is
//! copied.
//!
//! A process id and open descriptors survive `exec`. The program therefore inherits the map that
//! holds the count and the links that keep the BPF programs attached. The interposer adopts both
//! (`preload/src/bpf_count.rs`). Nothing is pinned in bpffs: the kernel detaches the programs when
//! the last descriptor closes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use aya::maps::Map;
use aya::programs::{BtfTracePoint, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::resource::{Resource, getrlimit};
use unconvoy::runtime::sensor::bpf::Count;

use crate::messages::command as messages;

/// Empty if the command was built without clang.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/runnable.bpf.o"));

/// The BPF programs. Each has the name of its tracepoint.
const TRACE_POINTS: [&str; 3] = ["sched_switch", "sched_wakeup", "sched_wakeup_new"];

/// Descriptors that the program inherits: the map and the links.
const KEPT: RawFd = 1 + TRACE_POINTS.len() as RawFd;

/// The inherited descriptors lie just below this number. Lower numbers are left to the program,
/// which may rely on them, and `select` cannot handle higher ones.
const BELOW: RawFd = 1024;

const PAGE: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4096).unwrap();

/// Starts the count for this process and returns the interposer's setting for it.
///
/// # Errors
///
/// The message names the cause and the remedy.
pub fn count_this_process() -> anyhow::Result<String> {
    ensure!(is_in_first_pid_namespace(), messages::in_pid_namespace());
    let (mut loaded, btf) = load()?;
    let links = attach(&mut loaded, &btf)?;
    let Some(Map::Array(map)) = loaded.map("count") else {
        bail!(messages::bpf_object_lacks("array count"))
    };
    let map = map.fd().as_fd();
    start_count(map)?;
    keep(map, &links)
}

/// Checks that the kernel accepts the BPF programs from this process, and can count its threads.
///
/// # Errors
///
/// The message names the cause and the remedy.
pub fn check() -> anyhow::Result<()> {
    ensure!(is_in_first_pid_namespace(), messages::in_pid_namespace());
    let (mut loaded, btf) = load()?;
    TRACE_POINTS.iter().try_for_each(|name| verify(&mut loaded, name, &btf).map(drop))
}

/// Creates the maps and relocates the programs for this kernel.
fn load() -> anyhow::Result<(Ebpf, Btf)> {
    ensure!(!OBJECT.is_empty(), messages::built_without_clang());
    let btf = Btf::from_sys_fs().context(messages::no_type_information())?;
    let loaded = EbpfLoader::new()
        .btf(Some(&btf))
        .allow_unsupported_maps()
        .load(OBJECT)
        .context(messages::no_bpf_privilege())?;
    Ok((loaded, btf))
}

/// Finds a program of a kind in an object.
///
/// # Errors
///
/// The object has no program of this name and kind.
pub fn program<'a, P>(loaded: &'a mut Ebpf, name: &str) -> anyhow::Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = loaded.program_mut(name);
    let program = program.with_context(|| messages::bpf_object_lacks(&format!("program {name}")));
    Ok(program?.try_into()?)
}

/// Passes a program to the kernel, which verifies it.
fn verify<'a>(
    loaded: &'a mut Ebpf,
    name: &str,
    btf: &Btf,
) -> anyhow::Result<&'a mut BtfTracePoint> {
    let program: &mut BtfTracePoint = program(loaded, name)?;
    program.load(name, btf).context(messages::no_bpf_privilege())?;
    Ok(program)
}

/// Returns whether this process is in the initial PID namespace, whose ids the BPF program sees.
fn is_in_first_pid_namespace() -> bool {
    use std::os::unix::fs::MetadataExt;
    const FIRST: u64 = 0xEFFF_FFFC; // PROC_PID_INIT_INO of include/linux/proc_ns.h
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == FIRST)
}

/// Loads and attaches every program and returns the links.
fn attach(loaded: &mut Ebpf, btf: &Btf) -> anyhow::Result<Vec<OwnedFd>> {
    let attach = |name: &&str| {
        let program = verify(loaded, name, btf)?;
        open_link(program.fd()?.as_fd()).with_context(|| messages::cannot_attach(name))
    };
    TRACE_POINTS.iter().map(attach).collect()
}

/// Attaches a loaded program to its tracepoint. aya can do this, but does not give away the link's
/// descriptor.
fn open_link(program: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    /// `union bpf_attr` of `include/uapi/linux/bpf.h` for `BPF_RAW_TRACEPOINT_OPEN`. A null name
    /// selects the tracepoint that the program was loaded for.
    #[repr(C)]
    struct RawTracePoint {
        name: u64,
        program: u32,
        padding: u32,
    }
    const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
    let attributes =
        RawTracePoint { name: 0, program: program.as_raw_fd().cast_unsigned(), padding: 0 };
    // SAFETY: the kernel only reads the attributes, and gets their size.
    let link = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            RAW_TRACEPOINT_OPEN,
            &raw const attributes,
            size_of::<RawTracePoint>(),
        )
    };
    if link < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link as RawFd) })
}

/// Stores this process's id in the map and checks that the kernel counts its only thread.
fn start_count(map: BorrowedFd<'_>) -> anyhow::Result<()> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page = unsafe {
        mmap(None, PAGE, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, map, 0)
    }
    .context(messages::cannot_map_count())?;
    // SAFETY: the page is larger than a `Count`, which consists of atomics, and stays mapped until
    // the end of this function.
    let count: &Count = unsafe { page.cast().as_ref() };
    count.process.store(std::process::id(), Relaxed);
    // A sleep ends with a wake-up and a switch. Each of them counts this thread.
    let is_counted = (0..100).any(|_| {
        std::thread::sleep(Duration::from_micros(100));
        count.runnable.load(Relaxed) == 1
    });
    // SAFETY: mapped above; `count` is not used again.
    unsafe { munmap(page, PAGE.get())? };
    ensure!(is_counted, messages::nothing_counted());
    Ok(())
}

/// Moves the descriptors to the numbers that the program inherits and returns the interposer's
/// setting for them.
fn keep(map: BorrowedFd<'_>, links: &[OwnedFd]) -> anyhow::Result<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let below = RawFd::try_from(limit).map_or(BELOW, |limit| limit.min(BELOW));
    let kept = [map].into_iter().chain(links.iter().map(|link| link.as_fd()));
    let is_free = |first: RawFd| {
        (first..first + KEPT).all(|number| {
            // SAFETY: F_GETFD only reads the descriptor's flags.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl(descriptor, FcntlArg::F_GETFD).is_err()
        })
    };
    let first = (3..=below - KEPT)
        .rev()
        .find(|&first| is_free(first))
        .context(messages::no_descriptors())?;
    for (number, descriptor) in (first..).zip(kept) {
        let moved = fcntl(descriptor, FcntlArg::F_DUPFD(number))?;
        // SAFETY: the descriptor is new. It is left open on purpose.
        let moved = unsafe { OwnedFd::from_raw_fd(moved) };
        ensure!(moved.as_raw_fd() == number, messages::descriptor_taken(number));
        fcntl(&moved, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let _ = moved.into_raw_fd();
    }
    Ok(format!("{}:{first}:{KEPT}", std::process::id()))
}

//! The parts that need no QEMU, compiled into this test because the plug-in itself does not link
//! without QEMU.

#![cfg(target_arch = "x86_64")]
#![allow(dead_code, reason = "the tests use a part")]

#[path = "../src/guest.rs"]
mod guest;
#[path = "../src/heap.rs"]
mod heap;
#[path = "../src/messages.rs"]
mod messages;
#[path = "../src/options.rs"]
mod options;
#[path = "../src/system_calls.rs"]
mod system_calls;

use unconvoy_trace_collector::memory::OwnMemory;
use unconvoy_trace_collector::state::{State, register};
use unconvoy_trace_stream::Region;
use unconvoy_trace_stream::sampling::Sampling;

#[test]
fn heap_finds_allocation_of_address() {
    static HEAP: heap::Heap = heap::Heap::new();
    let mut view = heap::View::default();
    let site = HEAP.site([7, 0, 0, 0]).expect("a site");
    assert_eq!(HEAP.site([7, 0, 0, 0]), Some(site));
    let pieces =
        [(0x6000_0010, 24), (0x6000_0030, 16_000), (0x6000_4010, 1), (0x6010_0000, 1 << 20)];
    for (address, size) in pieces {
        HEAP.add(Region::new(address, size), 3, site);
    }
    let mut take = |address| {
        HEAP.take_new(address, &mut view).map(|piece| (piece.region.address, piece.region.size))
    };
    assert_eq!(take(0x6000_0028), None, "past the end of the first allocation");
    assert_eq!(take(0x6000_0027), Some((0x6000_0010, 24)));
    assert_eq!(take(0x6000_0010), None, "taken before");
    assert_eq!(take(0x6000_0030 + 15_999), Some((0x6000_0030, 16_000)));
    assert_eq!(take(0x6000_4010), Some((0x6000_4010, 1)));
    assert_eq!((take(0x6000_ffff), take(0x6020_0000)), (None, None), "around the large allocation");
    assert_eq!(take(0x601f_ffff), Some((0x6010_0000, 1 << 20)));
    assert_eq!(take(0x6010_0000), None);
    let remove = |address| HEAP.remove(address).map(|piece| (piece.address == address, piece.size));
    assert_eq!(
        (remove(0x6010_0000), remove(0x6000_0010)),
        (Some((true, 1 << 20)), Some((true, 24)))
    );
    assert_eq!((remove(0x6010_0000), remove(0x6000_0018)), (None, None));
    HEAP.add(Region::new(0x6010_0000, 1 << 16), 3, site);
    assert_eq!(
        HEAP.take_new(0x6010_0100, &mut view).map(|piece| piece.frames),
        Some([7, 0, 0, 0]),
        "a new allocation at the same address"
    );
}

#[test]
fn options_out_of_range_are_rejected() {
    let parse = |text: &str| options::parse(text.split(',').filter(|option| !option.is_empty()));
    let (defaults, heap) = parse("out=x").expect("valid options");
    assert_eq!((defaults.rate, defaults.seed, defaults.words, heap), (10, 1, 1 << 14, true));
    assert_eq!(
        parse("rate=64,heap=off,out=x,seed=3,words=9").map(|(options, heap)| (options.rate, heap)),
        Ok((64, false))
    );
    let sampling = |text| parse(text).map(|(options, _)| options.sampling);
    assert_eq!(sampling("out=x"), Ok(Sampling::Bursts));
    assert_eq!(sampling("out=x,sampling=independent"), Ok(Sampling::Independent));
    for wrong in [
        "",
        "out",
        "out=x,sampling=all",
        "out=x,rate=0",
        "out=x,rate=ten",
        "out=x,words=40001",
        "out=x,heap=1",
        "out=x,size=1",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn io_calls_leave_the_process() {
    let file = [0, 4096, 3, 2];
    let memory = [0, 4096, 3, 0x22];
    assert!(
        system_calls::is_io(1, [0; 4])
            && system_calls::is_io(9, file)
            && system_calls::is_io(9999, [0; 4])
    );
    assert!(!system_calls::is_io(202, [0; 4]) && !system_calls::is_io(9, memory));
}

/// A state is accepted only if it looks like a processor's and the first access is at its stack
/// pointer.
#[test]
fn calibration_checks_registers_and_first_access() {
    use guest::{Calibration, Phase};
    let mut state = [0_u64; 18];
    (state[register::RSP], state[register::RDI], state[register::RIP], state[register::RFLAGS]) =
        (0x7000, 5, 0x1234, 0x202);
    let address = state.as_mut_ptr();
    let tried = |pc: u64, address: u64, accessed: u64| {
        let calibration = Calibration::new();
        assert_eq!(calibration.phase(), Phase::Unseen);
        calibration.check_state(pc, address);
        calibration.check_access(accessed);
        (calibration.phase(), calibration.initial_stack())
    };
    for accessed in [0x7000, 0x6ff8] {
        assert_eq!(tried(0x1234, address as u64, accessed), (Phase::Found, 0x7000));
    }
    assert_eq!(tried(0x1234, address as u64, 0x6ff0).0, Phase::Refuted, "another access");
    assert_eq!(tried(0x1235, address as u64, 0x7000).0, Phase::Refuted, "another rip");
    assert_eq!(
        tried(0x1234, address as u64 + 8, 0x7000).0,
        Phase::Refuted,
        "another state address"
    );
    assert_eq!(tried(0x1234, 16, 0x7000).0, Phase::Refuted, "unmapped");
    // SAFETY: an array of the state's form.
    let found = unsafe { State::new(address) };
    assert!(
        !found.is_watching() && State::current().is_none() && found.register(register::RDI) == 5
    );
    found.watch(true);
    assert!(found.is_watching());
    found.watch(false);
    // SAFETY: the same array.
    assert_eq!(unsafe { address.add(17).read() }, 0x202);
}

/// Makes the kernel refuse `call` to the calling thread.
fn refuse(call: libc::c_long) {
    let load_number = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let skip_others = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32);
    let give = |result| (libc::BPF_RET | libc::BPF_K, 0, result);
    let refused = give(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let mut program = [load_number, skip_others, refused, give(libc::SECCOMP_RET_ALLOW)]
        .map(|(code, jf, k)| libc::sock_filter { code: code as u16, jt: 0, jf, k });
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is valid for the length of the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn refused_reads_are_noticed() {
    assert!(OwnMemory.is_readable());
    let refused = std::thread::spawn(|| {
        refuse(libc::SYS_process_vm_readv);
        !OwnMemory.is_readable()
    });
    assert!(refused.join().expect("no panic"));
}

#[test]
fn every_message() {
    let messages = [
        messages::wrong_target("aarch64"),
        messages::no_thread("Resource temporarily unavailable (os error 11)"),
        messages::heap_option("1"),
        messages::unknown_mutex_layout(),
        messages::refused_reads(),
        messages::unknown_state(),
        messages::no_maps(),
        messages::unreadable_module("/usr/lib/libsample.so".as_ref(), "Permission denied"),
        messages::too_many_threads(1 << 15),
        messages::replaced_by_exec(),
    ];
    for message in &messages {
        println!("{message}");
        assert!(message.len() <= 120 && !message.ends_with('.'), "{message}");
    }
    let functions = include_str!("../src/messages.rs").matches("\npub fn ").count();
    assert_eq!(functions, messages.len(), "list each message function above");
}

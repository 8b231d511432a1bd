//! `unconvoy profile`: names of locks that are members of objects, from the debug information that
//! real compilers write. The tests read the calls' return addresses from the disassembly.

mod stage;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use stage::Stage;
use unconvoy_profile::layout::{COUNT_UNIT, MAGIC, VERSION};
use unconvoy_profile::{Kind, layout};

const BASE: u64 = 0x5500_0000_0000;

/// The return addresses of the calls of `callee` in `function`.
fn returns(program: &Path, function: &str, callee: &str) -> Vec<u64> {
    let mut command = Command::new("objdump");
    command.args(["-d", "--no-show-raw-insn", "-C"]).arg(program);
    let output = command.output().expect("the tests need binutils");
    let text = String::from_utf8(output.stdout).unwrap();
    let body = text.split("\n\n").find(|body| {
        body.lines().next().is_some_and(|head| head.contains(&format!(" <{function}")))
    });
    let body = body.unwrap_or_else(|| panic!("no {function} in {text}"));
    let lines: Vec<&str> = body.lines().collect();
    let calls = lines
        .windows(2)
        .filter(|pair| pair[0].contains("call") && pair[0].contains(&format!("<{callee}")));
    let address = |line: &str| u64::from_str_radix(line.split(':').next()?.trim(), 16).ok();
    calls.filter_map(|pair| Some(BASE + address(pair[1])?)).collect()
}

/// The name that the report gives to a mutex in a program's memory, some bytes after a symbol.
fn name_at(stage: &Stage, program: &Path, symbol: &str, offset: u64) -> String {
    let listed = Command::new("nm").arg(program).output().expect("nm");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find(|line| line.ends_with(&format!(" {symbol}"))).expect("a symbol");
    let address = u64::from_str_radix(&line[..16], 16).unwrap();
    name_of_lock(stage, program, (Kind::Mutex, BASE + address + offset), &[], &[])
}

/// The name that the report gives to a lock on the heap, which was initialised and waited for with
/// these stacks.
fn name_of(stage: &Stage, program: &Path, kind: Kind, waiter: &[u64], origin: &[u64]) -> String {
    name_of_lock(stage, program, (kind, 0x1000), waiter, origin)
}

fn name_of_lock(
    stage: &Stage,
    program: &Path,
    (kind, address): (Kind, u64),
    waiter: &[u64],
    origin: &[u64],
) -> String {
    let address = address as usize;
    let profile = layout::zeroed();
    let header = &profile.header;
    header.magic.store(MAGIC, Relaxed);
    header.version.store(VERSION, Relaxed);
    header.period_ns.store(1_000_000, Relaxed);
    let end = BASE + 0x10_0000;
    let maps = format!("{BASE:x}-{end:x} r-xp 00000000 00:00 0 {}\n", program.display());
    maps.bytes().zip(&profile.modules).for_each(|(byte, to)| to.store(byte, Relaxed));
    header.modules_used.store(maps.len() as u32, Relaxed);
    if !origin.is_empty() {
        profile.record_origin(address, profile.stack(origin, 0));
    }
    let (index, lock) = profile.lock(kind, address).unwrap();
    profile.record_wait(lock, 1_000_000, 1, false);
    let stack = profile.stack(waiter, 0);
    lock.first_stack.store(stack, Relaxed);
    profile.add_sample(index, (stack, 0), 1_000_000, COUNT_UNIT);
    std::fs::write(stage.path("members.profile"), profile.to_bytes()).unwrap();
    let mut command = stage.unconvoy();
    command.args(["profile", "--read", "members.profile", "--json", "members.json"]);
    command.timeout(stage::LIMIT).assert().success();
    let json: serde_json::Value = serde_json::from_str(&stage.read("members.json")).unwrap();
    json["locks"][0]["name"].as_str().unwrap().to_string()
}

/// `table` has an array of structures with locks; `pair` has two locks.
const C: &str = "
#include <pthread.h>
struct table { int size; struct { pthread_mutex_t lock; long hits; } slots[4]; };
struct pair { long count; pthread_mutex_t first, second; pthread_rwlock_t map; };
__attribute__((noinline)) void begin(struct table *t) {
    for (int i = 0; i < 4; i++) pthread_mutex_init(&t->slots[i].lock, 0);
}
__attribute__((noinline)) void take_second(struct pair *p) {
    pthread_mutex_lock(&p->second);
    p->count++;
    pthread_mutex_unlock(&p->second);
}
__attribute__((noinline)) void take_map(struct pair *p) {
    pthread_rwlock_rdlock(&p->map);
    p->count++;
    pthread_rwlock_unlock(&p->map);
}
__attribute__((noinline)) void wrapper(pthread_mutex_t *m) {
    pthread_mutex_lock(m);
    __asm__ volatile (\"\");
}
__attribute__((noinline)) void through_wrapper(struct pair *p) {
    wrapper(&p->first);
    p->count++;
    pthread_mutex_unlock(&p->first);
}
__attribute__((noinline)) void unknown(pthread_mutex_t *m, struct pair *p) {
    pthread_mutex_lock(m);
    p->count++;
}
int main(void) { return 0; }
";

#[test]
fn c_members_are_named_after_structure() {
    let stage = Stage::new();
    let source = stage.write("members.c", C);
    let program =
        stage.compile("members", &source, &["-O2", "-g", "-pie", "-fPIE", "-pthread"]).unwrap();
    let lock = "pthread_mutex_lock";
    let second = returns(&program, "take_second", lock);
    assert_eq!(name_of(&stage, &program, Kind::Mutex, &second[..1], &[]), "pair::second");
    let map = returns(&program, "take_map", "pthread_rwlock_rdlock");
    assert_eq!(name_of(&stage, &program, Kind::RwLock, &map[..1], &[]), "pair::map");
    let inner = returns(&program, "wrapper", lock);
    let outer = returns(&program, "through_wrapper", "wrapper");
    let stack = [inner[0], outer[0]];
    assert_eq!(name_of(&stage, &program, Kind::Mutex, &stack, &[]), "pair::first");
    // The wrapper alone knows no structure, and a lock that is a parameter need not be a member.
    let name = name_of(&stage, &program, Kind::Mutex, &inner[..1], &[]);
    assert!(name.starts_with("mutex first waited for in"), "{name}");
    let unknown = returns(&program, "unknown", lock);
    let name = name_of(&stage, &program, Kind::Mutex, &unknown[..1], &[]);
    assert!(name.starts_with("mutex first waited for in"), "{name}");
}

const CC: &str = "
#include <mutex>
namespace app {
struct Queue {
    long items; std::mutex mu; long rest[4];
    void push() { std::lock_guard<std::mutex> guard(mu); items++; }
};
struct Base { long id; std::recursive_mutex base_lock; long more[4]; };
class Server : public Base {
public:
    Queue queue; std::mutex other;
    __attribute__((noinline)) void serve();
    __attribute__((noinline)) void administer();
};
void Server::serve() { queue.push(); id++; }
void Server::administer() { std::lock_guard<std::recursive_mutex> guard(base_lock); id++; }
}
app::Server server;
int main() { server.serve(); server.administer(); }
";

#[test]
fn cpp_members_are_named_after_class_through_inlined_guards() {
    let stage = Stage::new();
    let source = stage.write("members.cc", CC);
    for level in ["-O2", "-O1"] {
        let flags = [level, "-g", "-pie", "-fPIE", "-pthread"];
        let program = stage.path("members");
        let built = Command::new("c++")
            .args(flags)
            .arg("-o")
            .args([&program, &source])
            .status()
            .expect("a C++ compiler");
        assert!(built.success());
        let serve = returns(&program, "app::Server::serve", "pthread_mutex_lock");
        let name = name_of(&stage, &program, Kind::Mutex, &serve[..1], &[]);
        assert_eq!(name, "app::Server::queue.mu", "{level}");
        let administer = returns(&program, "app::Server::administer", "pthread_mutex_lock");
        let name = name_of(&stage, &program, Kind::Mutex, &administer[..1], &[]);
        assert_eq!(name, "app::Base::base_lock", "{level}");
    }
}

#[test]
fn initialisation_names_member_of_array() {
    let stage = Stage::new();
    let source = stage.write("members.c", C);
    let program =
        stage.compile("members", &source, &["-O0", "-g", "-pie", "-fPIE", "-pthread"]).unwrap();
    let begin = returns(&program, "begin", "pthread_mutex_init");
    let name = name_of(&stage, &program, Kind::Mutex, &begin[..1], &begin[..1]);
    assert_eq!(name, "table::slots[].lock");
    // The structure has two locks, and unoptimised code does not say which one it takes.
    let second = returns(&program, "take_second", "pthread_mutex_lock");
    let name = name_of(&stage, &program, Kind::Mutex, &second[..1], &[]);
    assert!(name.starts_with("mutex first waited for in take_second"), "{name}");
}

/// Distributions compress debug information: `dwz` shares it within a file and, with `-m`, moves
/// what several files share into a supplement.
#[test]
#[ignore = "make test-all: needs dwz"]
fn shared_debug_information_names_locks_and_places() {
    if Command::new("dwz").arg("--version").output().is_err() {
        println!("missing: dwz not installed (apt-get install dwz)");
        return;
    }
    let stage = Stage::new();
    let source = stage.write("members.c", C);
    let flags = ["-O2", "-g", "-pie", "-fPIE", "-pthread"];
    let program = stage.compile("members", &source, &flags).unwrap();
    let other = stage.compile("other", &source, &flags).unwrap();
    let names = || {
        let lock = "pthread_mutex_lock";
        let second = returns(&program, "take_second", lock);
        let unknown = returns(&program, "unknown", lock);
        [second, unknown].map(|pcs| name_of(&stage, &program, Kind::Mutex, &pcs[..1], &[]))
    };
    let before = names();
    assert_eq!(before[0], "pair::second");
    assert!(before[1].starts_with("mutex first waited for in unknown (members.c:"), "{before:?}");
    let dwz = |arguments: &[&std::ffi::OsStr]| {
        let output = Command::new("dwz").args(arguments).output().expect("dwz");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let single = stage.path("single");
    dwz(&["-o".as_ref(), single.as_os_str(), program.as_os_str()]);
    let original = std::fs::read(&program).unwrap();
    std::fs::copy(&single, &program).unwrap();
    assert_eq!(names(), before);
    std::fs::write(&program, original).unwrap();
    let supplement = stage.path("common.debug");
    let option = ["-m".as_ref(), supplement.as_os_str(), "-M".as_ref(), "common.debug".as_ref()];
    dwz(&[&option[..], &[program.as_os_str(), other.as_os_str()]].concat());
    assert!(supplement.exists());
    // The structure is in the supplement, which is not searched for types.
    let place = "mutex first waited for in take_second (members.c:";
    let shared = names();
    assert!(shared[0] == before[0] || shared[0].starts_with(place), "{shared:?}");
    assert_eq!(shared[1], before[1]);
    std::fs::remove_file(&supplement).unwrap();
    assert_ne!(names()[1], before[1]);
}

#[test]
fn memory_behind_variable_is_not_its_member() {
    let stage = Stage::new();
    let source = "
#include <pthread.h>
struct pair { long count; pthread_mutex_t first; } known = { 1 };
__asm__(\".data\\n.skip 4096\\n.text\");
int main(void) { return known.count; }
";
    let source = stage.write("behind.c", source);
    let flags = ["-g", "-O1", "-pie", "-fPIE", "-fno-toplevel-reorder"];
    let program = stage.compile("behind", &source, &flags).unwrap();
    assert_eq!(name_at(&stage, &program, "known", 8), "known.first");
    let name = name_at(&stage, &program, "known", 8 + 10 * 48);
    assert!(name.starts_with("behind+0x"), "{name}");
}

/// An array whose elements are the array itself, and a structure with such a member.
const CYCLIC: &str = r#"
        .data
        .globl  array, structure, main
        .type   array, @object
        .size   array, 4096
array:  .zero   4096
        .type   structure, @object
        .size   structure, 4096
structure: .zero 4096
        .text
main:   ret
        .section .debug_abbrev,"",@progbits
        .byte   1, 0x11, 1, 0, 0
        .byte   2, 0x34, 0, 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0
        .byte   3, 0x01, 0, 0x49, 0x13, 0, 0
        .byte   4, 0x13, 1, 0x0b, 0x05, 0, 0
        .byte   5, 0x0d, 0, 0x49, 0x13, 0x38, 0x0b, 0, 0
        .byte   0
        .section .debug_info,"",@progbits
unit:   .long   end - start
start:  .value  4
        .long   0
        .byte   8
        .byte   1
        .byte   2
        .asciz  "array"
        .long   cyclic - unit
        .byte   9, 3
        .quad   array
        .byte   2
        .asciz  "structure"
        .long   class - unit
        .byte   9, 3
        .quad   structure
cyclic: .byte   3
        .long   cyclic - unit
class:  .byte   4
        .value  4096
        .byte   5
        .long   cyclic - unit
        .byte   0
        .byte   0
        .byte   0
end:
        .section .note.GNU-stack,"",@progbits
"#;

#[test]
fn types_that_contain_themselves_give_no_member() {
    let stage = Stage::new();
    let source = stage.write("cyclic.s", CYCLIC);
    let program = stage.compile("cyclic", &source, &["-pie"]).unwrap();
    for symbol in ["array", "structure"] {
        assert_eq!(name_at(&stage, &program, symbol, 8), format!("{symbol}+0x8"));
    }
}

use super::*;

#[test]
fn brief_drops_parameters_and_namespaces() {
    assert_eq!(
        brief("leveldb::DBImpl::Write(leveldb::WriteOptions const&)"),
        "leveldb::DBImpl::Write"
    );
    assert_eq!(brief("(anonymous namespace)::Cache::Lookup(int)"), "Cache::Lookup");
    assert_eq!(brief("main"), "main");
    assert_eq!(
        brief("f()::{lambda(int)#1}::operator()(int) const"),
        "f::{lambda(int)#1}::operator()"
    );
}

#[test]
fn readable_demangles_only_mangled_names() {
    assert_eq!(readable("m"), "m");
    assert_eq!(readable("_ZN5Cache6LookupEi"), "Cache::Lookup");
}

#[test]
fn names_have_no_line_ends() {
    assert_eq!(readable("a\nb"), "a?b");
    assert_eq!(brief("a\nb(int)"), "a?b");
}

#[test]
fn images_name_this_tests_code_and_variable() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mapping = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (base, end) = fields[0].split_once('-').unwrap();
        let path = PathBuf::from(fields.get(5).filter(|path| path.starts_with('/'))?);
        Some(Mapping { base: hex(base), end: hex(end), offset: hex(fields[2]), path })
    };
    let images = Images::new(&maps.lines().filter_map(mapping).collect::<Vec<_>>());
    let function = brief_drops_parameters_and_namespaces as fn() as usize as u64;
    let name = images.code(function).unwrap();
    // Release builds have no debug information, and so no line.
    assert!(name.contains("brief_drops_parameters_and_namespaces"), "{name}");
    static VARIABLE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let address = VARIABLE.as_ptr() as u64;
    assert!(images.variable(address).unwrap().contains("VARIABLE"));
    assert_eq!(
        images.origin(address).unwrap().file,
        std::env::current_exe().unwrap().canonicalize().unwrap()
    );
    assert_eq!(images.origin(8), None);
}

/// Shared anonymous memory, say, is mapped several times as `/dev/zero (deleted)`.
#[test]
fn memory_between_two_mappings_of_one_path_is_in_neither() {
    let mapping = |base: u64| Mapping {
        base,
        end: base + 0x1000,
        offset: 0,
        path: "/dev/zero (deleted)".into(),
    };
    let images = Images::located(&[mapping(0x7f00_0000_0000), mapping(0x7f90_0000_0000)], |_| None);
    assert_eq!(images.origin(0x7f50_0000_0040), None);
    assert_eq!(images.origin(0x7f90_0000_0040).map(|it| it.offset), Some(0x40));
}

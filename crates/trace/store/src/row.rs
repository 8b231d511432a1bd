//! The columns of a trace file, and one row.

use parquet::data_type::ByteArray;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;
use std::fmt::Write;
use std::sync::Arc;
use unconvoy_trace_stream::Region;

/// Kinds of rows, the values of the column `record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Context,
    Module,
    Lock,
    Section,
    Entry,
    Place,
    Allocation,
    Counts,
    End,
    Object,
    Held,
}

impl Kind {
    pub const ALL: [(Kind, &str); 11] = [
        (Kind::Context, "context"),
        (Kind::Module, "module"),
        (Kind::Lock, "lock"),
        (Kind::Section, "section"),
        (Kind::Entry, "entry"),
        (Kind::Place, "place"),
        (Kind::Allocation, "allocation"),
        (Kind::Counts, "counts"),
        (Kind::End, "end"),
        (Kind::Object, "object"),
        (Kind::Held, "held"),
    ];

    pub fn named(name: &[u8]) -> Option<Kind> {
        Kind::ALL.iter().find(|(_, known)| known.as_bytes() == name).map(|(kind, _)| *kind)
    }
}

/// Unsigned 32-bit columns; the two masks have 8 bits.
pub(crate) mod word {
    pub const LOCK: usize = 0;
    pub const THREAD: usize = 1;
    pub const FLAGS: usize = 2;
    pub const ENTRIES: usize = 3;
    pub const READ: usize = 4;
    pub const WRITTEN: usize = 5;
    pub const READ_PLACE: usize = 6;
    pub const WRITTEN_PLACE: usize = 7;
    pub const PLACE: usize = 8;
    pub const INCARNATION: usize = 9;
    pub const NAMES: [&str; 10] = [
        "lock",
        "thread",
        "flags",
        "entries",
        "read",
        "written",
        "read_place",
        "written_place",
        "place",
        "incarnation",
    ];
}

/// Unsigned 64-bit columns.
pub(crate) mod long {
    pub const ORDER: usize = 0;
    pub const ADDRESS: usize = 1;
    pub const SIZE: usize = 2;
    pub const FILE_OFFSET: usize = 3;
    pub const PC: usize = 4;
    pub const ACQUISITIONS: usize = 5;
    pub const SAMPLED: usize = 6;
    pub const CONTENDED: usize = 7;
    pub const HELD: usize = 8;
    pub const WAITED: usize = 9;
    pub const NAMES: [&str; 10] = [
        "order",
        "address",
        "size",
        "file_offset",
        "pc",
        "acquisitions",
        "sampled",
        "contended",
        "held",
        "waited",
    ];
}

/// Text columns.
pub(crate) mod text {
    pub const NAME: usize = 0;
    pub const JSON: usize = 1;
    pub const NAMES: [&str; 2] = ["name", "json"];
}

/// Index of the first column of each group. `record` is column 0; `frames` comes last.
pub(crate) const WORDS: usize = 1;
pub(crate) const LONGS: usize = WORDS + word::NAMES.len();
pub(crate) const TEXTS: usize = LONGS + long::NAMES.len();
pub(crate) const FRAMES: usize = TEXTS + text::NAMES.len();

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub kind: Kind,
    pub words: [Option<u32>; word::NAMES.len()],
    pub longs: [Option<u64>; long::NAMES.len()],
    /// Without copies: in a file, many rows may share a text.
    pub texts: [Option<ByteArray>; text::NAMES.len()],
    /// Return addresses of an allocation.
    pub frames: Vec<u64>,
}

impl Row {
    pub fn new(kind: Kind) -> Self {
        Row {
            kind,
            words: Default::default(),
            longs: Default::default(),
            texts: Default::default(),
            frames: Vec::new(),
        }
    }

    pub fn word(mut self, column: usize, value: u32) -> Self {
        self.words[column] = Some(value);
        self
    }

    pub fn long(mut self, column: usize, value: u64) -> Self {
        self.longs[column] = Some(value);
        self
    }

    pub fn region(self, region: Region) -> Self {
        self.long(long::ADDRESS, region.address).long(long::SIZE, region.size)
    }

    /// Replaces invalid UTF-8: Parquet readers require valid text.
    pub fn text(mut self, column: usize, value: &[u8]) -> Self {
        self.texts[column] = Some(String::from_utf8_lossy(value).into_owned().into_bytes().into());
        self
    }
}

/// The Parquet schema. An incompatible later form of the file gets another message name.
pub(crate) fn schema() -> TypePtr {
    let mut message =
        String::from("message unconvoy_address_sets_2 {\n required binary record (STRING);\n");
    for (column, name) in word::NAMES.iter().enumerate() {
        let bits = if matches!(column, word::READ | word::WRITTEN) { 8 } else { 32 };
        let _ = writeln!(message, " optional int32 {name} (INTEGER({bits},false));");
    }
    for name in long::NAMES {
        let _ = writeln!(message, " optional int64 {name} (INTEGER(64,false));");
    }
    for name in text::NAMES {
        let _ = writeln!(message, " optional binary {name} (STRING);");
    }
    message.push_str(
        " optional group frames (LIST) { \
         repeated group list { required int64 element (INTEGER(64,false)); } }\n}",
    );
    Arc::new(parse_message_type(&message).expect("a well-formed schema"))
}

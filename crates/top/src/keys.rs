//! Bytes from a terminal as keys.

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
    Char(char),
}

/// The sequences of keys with several bytes, after the escape.
const SEQUENCES: [(&[u8], Key); 6] = [
    (b"[A", Key::Up),
    (b"OA", Key::Up),
    (b"[B", Key::Down),
    (b"OB", Key::Down),
    (b"[5~", Key::PageUp),
    (b"[6~", Key::PageDown),
];

/// The keys in the bytes of one read. A sequence that is no known key is left out.
pub fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        match first {
            0x1b if rest.is_empty() => keys.push(Key::Escape),
            0x1b => {
                let known = SEQUENCES.iter().find(|(sequence, _)| rest.starts_with(sequence));
                keys.extend(known.map(|&(_, key)| key));
                bytes = match known {
                    Some((sequence, _)) => &rest[sequence.len()..],
                    None => unknown(rest),
                };
            }
            b'\r' | b'\n' => keys.push(Key::Enter),
            0x7f | 0x08 => keys.push(Key::Backspace),
            b' '..=b'~' => keys.push(Key::Char(first.into())),
            _ => {}
        }
    }
    keys
}

/// What follows an unknown sequence, which ends with a letter or a tilde.
fn unknown(rest: &[u8]) -> &[u8] {
    let start = usize::from(matches!(rest[0], b'[' | b'O'));
    let end = rest[start..].iter().position(|byte| byte.is_ascii_alphabetic() || *byte == b'~');
    end.map_or(&[], |end| &rest[start + end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_read_are_separated() {
        assert_eq!(keys(b"\x1b[Aq"), [Key::Up, Key::Char('q')]);
        assert_eq!(keys(b"\x1bOB\x1b[6~"), [Key::Down, Key::PageDown]);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"a\x7f\n"), [Key::Char('a'), Key::Backspace, Key::Enter]);
    }

    #[test]
    fn unknown_sequence_with_a_quit_letter_is_no_key() {
        assert_eq!(keys(b"\x1b[1;5q"), []);
        assert_eq!(keys(b"\x1b[1;5Hs"), [Key::Char('s')]);
        assert_eq!(keys(b"\x1bOq\x00\xff"), []);
        assert_eq!(keys(b"\x1b["), []);
    }
}

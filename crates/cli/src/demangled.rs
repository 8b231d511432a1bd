//! Short forms of demangled names.

/// Returns a name without lists of parameters, which are long in C++. A variable in a function
/// keeps its own name: `registry(int)::lock` becomes `registry::lock`.
pub fn brief(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "");
    let mut short = String::new();
    // Inside `<>` and `{}`, parentheses belong to an argument or to a lambda.
    let (mut depth, mut rest) = (0_usize, name.as_str());
    while let Some(first) = rest.chars().next() {
        let operator = operator(rest).filter(|_| is_start_of_word(&short));
        if let Some(operator) = operator {
            short.push_str(operator);
            rest = &rest[operator.len()..];
            continue;
        }
        match first {
            '<' | '{' => depth += 1,
            '>' | '}' if !short.ends_with('-') => depth = depth.saturating_sub(1),
            '(' if depth == 0 => {
                let after = after_parameters(rest);
                if !after.starts_with("::") {
                    break;
                }
                rest = after;
                continue;
            }
            _ => {}
        }
        short.push(first);
        rest = &rest[first.len_utf8()..];
    }
    on_one_line(&short)
}

fn is_start_of_word(before: &str) -> bool {
    !before.ends_with(|last: char| last.is_alphanumeric() || last == '_')
}

/// The name of an operator at the start of `text`: its signs are no brackets.
fn operator(text: &str) -> Option<&str> {
    let signs = text.strip_prefix("operator")?;
    let length = match signs {
        _ if signs.starts_with("()") => 2,
        // Template arguments follow an operator directly, but `operator<` after a space.
        _ => signs.find(|sign: char| {
            !"<>=-+*/%&|^!~,[]".contains(sign) || sign == '<' && !signs.starts_with('<')
        })?,
    };
    (length > 0).then(|| &text[.."operator".len() + length])
}

/// What follows a list of parameters, and the qualifiers of the member function that has them.
fn after_parameters(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|sign: char| {
        depth += i32::from(sign == '(') - i32::from(sign == ')');
        depth == 0
    });
    let mut rest = end.map_or("", |end| &text[end + 1..]);
    while let Some(after) =
        [" const", " volatile", " &&", " &"].iter().find_map(|it| rest.strip_prefix(it))
    {
        rest = after;
    }
    rest
}

/// Replaces control characters, with which a file could forge lines of a report.
pub fn on_one_line(name: &str) -> String {
    name.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_no_parameters() {
        for (long, short) in [
            ("registry(int)", "registry"),
            ("registry(int)::write_lock", "registry::write_lock"),
            ("Pool::take(std::function<void (int)>) const", "Pool::take"),
            ("Pool::take() const::lock", "Pool::take::lock"),
            ("Pool::take(int) &&::lock", "Pool::take::lock"),
            ("Box<(Policy)1>::hit()", "Box<(Policy)1>::hit"),
            ("Box<(Policy)1>::hit(int)::lock", "Box<(Policy)1>::hit::lock"),
            ("void run<void (*)(int)>(int)", "void run<void (*)(int)>"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
            ("(anonymous namespace)::Cache::get(int)", "Cache::get"),
            ("operator<<(std::ostream&, Lock const&)", "operator<<"),
            ("Guard::operator->() const", "Guard::operator->"),
            ("bool operator< <int>(A<int>, A<int>)", "bool operator< <int>"),
            ("Guard::operator bool() const", "Guard::operator bool"),
            ("void operator*<void (int)>(A&)", "void operator*<void (int)>"),
            ("myoperator<int>(int)", "myoperator<int>"),
            ("<fn(u8) -> u16 as core::ops::Fn>::call", "<fn(u8) -> u16 as core::ops::Fn>::call"),
            (
                "core::ops::FnOnce::call_once{{vtable.shim}}",
                "core::ops::FnOnce::call_once{{vtable.shim}}",
            ),
            ("guard variable for registry(int)::lock", "guard variable for registry::lock"),
            ("broken(int", "broken"),
        ] {
            assert_eq!(brief(long), short);
        }
    }
}

//! The program's command in the environment of one configuration.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use unconvoy::catalogue::environment;
use unconvoy_measure::parts;

use super::configuration::Configuration;
use crate::executable;

/// Returns the command of one run.
pub fn command(
    words: &[OsString],
    configuration: &Configuration,
    library: Option<&Path>,
) -> Command {
    let mut command = executable::command(words);
    // Remove the user's own unconvoy settings: a configuration is exactly what its name says.
    let mut preload = std::env::var_os(environment::PRELOAD.name)
        .and_then(|existing| parts::without_preload(&existing));
    for variable in environment::of_library() {
        command.env_remove(variable.name);
    }
    if let (Some((lock, load)), Some(library)) = (configuration.lock, library) {
        command.env(environment::LOCK.name, lock).env(environment::LOAD_MANAGER.name, load);
        if configuration.has_special_set {
            command.env(environment::SPECIAL_SET.name, "1");
        }
        for (name, value) in &configuration.settings {
            command.env(name, value);
        }
        preload = Some(parts::preload(library, preload.as_deref()));
    }
    match preload {
        Some(value) => command.env(environment::PRELOAD.name, value),
        None => command.env_remove(environment::PRELOAD.name),
    };
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_configuration_sets_no_variable() {
        let of = |name: &str, library: Option<&Path>| {
            let configuration = Configuration::parse(name).unwrap();
            let command = command(&["true".into()], &configuration, library);
            let value = |key: &str| {
                command
                    .get_envs()
                    .find(|(k, _)| *k == key)
                    .and_then(|(_, v)| v)
                    .map(ToOwned::to_owned)
            };
            (
                value(environment::LOCK.name),
                value(environment::LOAD_MANAGER.name),
                value(environment::PRELOAD.name),
                value(environment::SPECIAL_SET.name),
            )
        };
        let library = Path::new("/x/libunconvoy.so");
        assert_eq!(of("libc", Some(library)).0, None);
        let (lock, load, preload, special_set) = of("mcs+none", Some(library));
        assert_eq!((special_set, of("mcs+none+ssc", Some(library)).3), (None, Some("1".into())));
        assert_eq!((lock.unwrap(), load.unwrap()), ("mcs".into(), "none".into()));
        assert!(preload.unwrap().to_string_lossy().starts_with("/x/libunconvoy.so"));
    }
}

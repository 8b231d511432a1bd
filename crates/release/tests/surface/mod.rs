//! rustdoc's description of the library, and the public items in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// rustdoc's description of the library with its default features.
pub struct Document {
    pub path: PathBuf,
    pub json: Value,
}

/// Describes the library, once for all tests.
pub fn document() -> &'static Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        // A folder of its own: other builds do not have `RUSTC_BOOTSTRAP`, which allows JSON.
        let target = repository().join("target/api");
        let output = Command::new(env!("CARGO"))
            .args(["rustdoc", "--quiet", "-p", "unconvoy", "--lib", "--"])
            .args(["-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
            .current_dir(repository())
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTC_BOOTSTRAP", "1")
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = target.join("doc/unconvoy.json");
        let text = std::fs::read_to_string(&path).expect("rustdoc writes a file");
        Document { path, json: serde_json::from_str(&text).expect("rustdoc writes JSON") }
    })
}

/// An item that a user can name, other than a module.
#[derive(Debug)]
pub struct Item {
    pub path: String,
    pub kind: String,
    pub documentation: String,
    id: String,
}

/// The public items. An item with several paths has the shortest one.
pub fn items(json: &Value) -> Vec<Item> {
    let mut found = Vec::new();
    collect(json, &id(&json["root"]), "unconvoy", &mut found);
    found.sort_by_key(|item: &Item| (item.path.matches("::").count(), item.path.clone()));
    let mut seen = Vec::new();
    found.retain(|item| {
        !seen.contains(&item.id) && {
            seen.push(item.id.clone());
            true
        }
    });
    found
}

/// The key of an item in the index. Early versions of the format have strings, later ones numbers.
fn id(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn collect(json: &Value, module: &str, path: &str, found: &mut Vec<Item>) {
    for member in json["index"][module]["inner"]["module"]["items"].as_array().expect("items") {
        let mut key = id(member);
        let mut name = json["index"][&key]["name"].as_str().map(str::to_string);
        let import = &json["index"][&key]["inner"]["use"];
        if import.is_object() {
            assert_eq!(import["is_glob"], false, "{path}: an import of all names is not followed");
            key = id(&import["id"]);
            name = import["name"].as_str().map(str::to_string);
        }
        // The index has no private, hidden and foreign items.
        let item = &json["index"][&key];
        let (Some(inner), Some(name)) = (item["inner"].as_object(), name) else { continue };
        let kind = inner.keys().next().expect("an item has a kind").clone();
        let path = format!("{path}::{name}");
        if kind == "module" {
            collect(json, &key, &path, found);
        } else if kind != "impl" {
            let documentation = item["docs"].as_str().unwrap_or_default().to_string();
            found.push(Item { path, kind, documentation, id: key });
        }
    }
}

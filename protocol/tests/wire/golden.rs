//! Reads the golden vectors. `tests/golden/README.md` describes their form.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

/// Every file of vectors. Each is read by one test.
pub(crate) const FILES: [&str; 7] =
    ["checks.txt", "errors.txt", "frames.txt", "limits.txt", "replies.txt", "ring.txt", "varint.txt"];

/// One vector. Fields are taken out as they are checked, so that one nobody checks is noticed.
pub(crate) struct Entry {
    pub(crate) name: String,
    fields: BTreeMap<String, String>,
}

impl Entry {
    /// Takes a field out, if it is there.
    pub(crate) fn take(&mut self, field: &str) -> Option<String> {
        self.fields.remove(field)
    }

    /// Takes out a field that must be there.
    pub(crate) fn need(&mut self, field: &str) -> String {
        self.take(field).unwrap_or_else(|| panic!("{}: no field `{field}`", self.name))
    }

    /// Takes out `hex`.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        bytes_of(&self.need("hex"))
    }

    /// Takes out a field that says `yes` or `no`.
    pub(crate) fn flag(&mut self, field: &str, default: bool) -> bool {
        match self.take(field).as_deref() {
            None => default,
            Some("yes") => true,
            Some("no") => false,
            Some(other) => panic!("{}: `{field}` is `{other}`, neither yes nor no", self.name),
        }
    }
}

/// Bytes in hexadecimal, with any white space between digits.
pub(crate) fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap_or_else(|| panic!("`{c}` is no hexadecimal digit")))
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in `{hex}`");
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Calls `check` with every entry of a file, and fails at a field that it left.
pub(crate) fn check_all(file: &str, mut check: impl FnMut(&mut Entry)) {
    let mut names = BTreeSet::new();
    for mut entry in entries(&fs::read_to_string(folder().join(file)).expect(file)) {
        println!("{file}: {}", entry.name);
        check(&mut entry);
        assert!(entry.fields.is_empty(), "{file}: {}: nobody checks {:?}", entry.name, entry.fields);
        assert!(names.insert(entry.name.clone()), "{file}: {} stands twice", entry.name);
    }
    assert!(!names.is_empty(), "{file} has no entries");
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"))
}

fn entries(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.is_empty() && !fields.is_empty() {
            entries.push(entry(std::mem::take(&mut fields)));
        }
        let content = line.split('#').next().unwrap_or_default().trim_end();
        if content.is_empty() {
            continue;
        }
        if content.starts_with(' ') {
            let (_, value) = fields.last_mut().unwrap_or_else(|| panic!("no field is above `{line}`"));
            if !value.is_empty() {
                value.push('\n');
            }
            value.push_str(content.trim_start());
        } else {
            let (field, value) = content.split_once(':').unwrap_or_else(|| panic!("no field in `{line}`"));
            fields.push((field.into(), value.trim_start().into()));
        }
    }
    entries
}

fn entry(fields: Vec<(String, String)>) -> Entry {
    let count = fields.len();
    let mut fields: BTreeMap<_, _> = fields.into_iter().collect();
    let name = fields.remove("name").unwrap_or_else(|| panic!("an entry without a name: {fields:?}"));
    assert_eq!(fields.len() + 1, count, "{name}: a field stands twice");
    Entry { name, fields }
}

#[test]
fn every_file_is_read_by_a_test() {
    let found: BTreeSet<String> = fs::read_dir(folder())
        .expect("the folder of the vectors")
        .map(|entry| entry.expect("an entry of the folder").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(found, FILES.iter().map(|&name| name.to_owned()).collect());
}

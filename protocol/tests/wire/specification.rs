//! What the tables of SPEC.md say is what the crate does.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_protocol::{define, error::DecodeError, frame::FrameType, limits, reply, varint};

use crate::golden::FILES;

const TEXT: &str = include_str!("../../SPEC.md");

/// The cells of the table that follows the line `header`.
fn table(header: &str) -> Vec<Vec<&'static str>> {
    let mut lines = TEXT.lines().skip_while(|line| !line.starts_with(header)).skip(2).peekable();
    assert!(lines.peek().is_some(), "SPEC.md has no table `{header}`");
    lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// Name of the rule that an error reports.
pub(crate) fn rule_of(error: &DecodeError) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// Every rule of the format, with the code of ERROR.
pub(crate) fn error_rules() -> BTreeSet<(String, u8)> {
    let mut rules = BTreeSet::new();
    for row in table("| code |") {
        let code = row[0].split(' ').next().and_then(|code| code.parse().ok()).expect("a code");
        rules.extend(row[2].split_whitespace().map(|rule| (rule.trim_matches('`').to_owned(), code)));
    }
    rules
}

/// Every bound by its name.
pub(crate) fn bounds() -> BTreeMap<&'static str, u64> {
    let value = |text: &str| text.replace(',', "").parse().expect("a value");
    table("| constant |").into_iter().map(|row| (row[0].trim_matches('`'), value(row[1]))).collect()
}

#[test]
fn bounds_are_the_constants() {
    let mut bounds = bounds();
    // It belongs to a feature, whose tests compare it.
    assert!(bounds.remove("POINTS").is_some());
    let constants = BTreeMap::from([
        ("VERSION", u64::from(limits::VERSION)),
        ("HEADER_BYTES", limits::HEADER_BYTES as u64),
        ("CHECKSUM_BYTES", limits::CHECKSUM_BYTES as u64),
        ("HELLO_BYTES_MAX", limits::HELLO_BYTES_MAX as u64),
        ("FRAME_BYTES_MIN", limits::FRAME_BYTES_MIN as u64),
        ("FRAME_BYTES_DEFAULT", limits::FRAME_BYTES_DEFAULT as u64),
        ("FRAME_BYTES_MAX", limits::FRAME_BYTES_MAX as u64),
        ("ITEMS_DEFAULT", limits::ITEMS_DEFAULT as u64),
        ("INFLIGHT_DEFAULT", limits::INFLIGHT_DEFAULT as u64),
        ("INFLIGHT_MAX", limits::INFLIGHT_MAX as u64),
        ("KEY_BYTES_MAX", limits::KEY_BYTES_MAX as u64),
        ("NAME_BYTES_MAX", limits::NAME_BYTES_MAX as u64),
        ("LIMITS_MAX", limits::LIMITS_MAX as u64),
        ("LINKED_MAX", limits::LINKED_MAX as u64),
        ("POLICIES_MAX", limits::POLICIES_MAX as u64),
        ("DEFINITIONS_MAX", limits::DEFINITIONS_MAX as u64),
        ("ALIAS_MAX", define::ALIAS_MAX),
        ("TEXT_BYTES_MAX", limits::TEXT_BYTES_MAX as u64),
        ("VALUE_MAX", varint::VALUE_MAX),
        ("PERIOD_US_MAX", limits::PERIOD_US_MAX),
        ("RESET_UNIT_US", limits::RESET_UNIT_US),
        ("ITEM_BYTES_MAX", reply::ITEM_BYTES_MAX as u64),
        ("HELLO_TIMEOUT_MS", limits::HELLO_TIMEOUT_MS),
        ("FRAME_TIMEOUT_MS", limits::FRAME_TIMEOUT_MS),
        ("WRITE_TIMEOUT_MS", limits::WRITE_TIMEOUT_MS),
    ]);
    assert_eq!(bounds, constants);
}

#[test]
fn frame_types_are_those_of_the_crate() {
    let rows: BTreeMap<u8, String> = table("| type |")
        .into_iter()
        .map(|row| (u8::from_str_radix(row[0], 16).expect("a type"), row[1].replace('_', "").to_lowercase()))
        .collect();
    let types = FrameType::ALL.iter().map(|&kind| (kind as u8, format!("{kind:?}").to_lowercase()));
    assert_eq!(rows, types.collect());
    for row in table("| type |") {
        let kind = u8::from_str_radix(row[0], 16).ok().and_then(FrameType::from_wire).expect("a type");
        assert_eq!(row[2] == "server", kind.is_from_server(), "{kind:?}");
    }
}

#[test]
fn reasons_are_those_of_the_crate() {
    let rows: Vec<&str> = table("| reason |").into_iter().map(|row| row[0]).collect();
    let reasons = reply::Reason::ALL.iter().map(|reason| format!("{} {}", reason.to_wire(), reason.as_str()));
    assert_eq!(rows, reasons.collect::<Vec<_>>());
}

#[test]
fn vectors_are_described() {
    let readme = include_str!("../golden/README.md");
    for file in FILES {
        assert!(readme.contains(&format!("`{file}`")), "{file}");
    }
}

//! Keys on the command line, or one a line on the standard input.

use std::io::{self, BufRead};

use tollgate_protocol::limits::KEY_BYTES_MAX;

use super::{CliError, usage};

/// The keys that arguments stand for, in order: `-` stands for the lines of the standard input.
pub(super) fn read(args: Vec<String>) -> Result<Vec<String>, CliError> {
    expand(args, io::stdin().lock())
}

/// Puts the lines of `input` in the place of `-`. Empty lines are left out.
fn expand(args: Vec<String>, mut input: impl BufRead) -> Result<Vec<String>, CliError> {
    let mut keys = Vec::with_capacity(args.len());
    for arg in args {
        if arg == "-" {
            for line in input.by_ref().lines() {
                keys.extend(Some(line.map_err(CliError::Input)?).filter(|key| !key.is_empty()));
            }
        } else {
            keys.push(arg);
        }
    }
    match keys.iter().find(|key| !(1..=KEY_BYTES_MAX).contains(&key.len())) {
        Some(key) => Err(usage(format_args!(
            "a key has {} bytes, 1 to {KEY_BYTES_MAX} are allowed: give a key, and hash one that is longer",
            key.len()
        ))),
        None => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(args: &[&str], input: &str) -> Result<Vec<String>, String> {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        expand(args, input.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_dash_stands_for_the_lines_of_the_standard_input() {
        let keys = expanded(&["a", "-", "b"], "x y\n\nz\r\nlast");
        assert_eq!(keys, Ok(["a", "x y", "z", "last", "b"].map(String::from).to_vec()));
    }

    #[test]
    fn a_key_that_no_server_takes_is_wrong_usage() {
        let error = expanded(&["a", ""], "").unwrap_err();
        assert!(error.contains("a key has 0 bytes, 1 to 1024 are allowed"), "{error}");
        assert!(expanded(&[&"k".repeat(1024)], "").is_ok());
        assert!(expanded(&[&"k".repeat(1025)], "").is_err());
        assert!(expanded(&["-"], &"k".repeat(1025)).is_err());
    }
}

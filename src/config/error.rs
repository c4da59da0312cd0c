//! What can be wrong with a configuration, told all at once.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML, has a key that is not known, or a value of the wrong type.
    #[error("{}: {text}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        text: String,
    },
    /// Values do not do: all of them, one a line.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// A value that does not do: where it stands, what is wrong with it, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A key of the file.
    Key(String),
    /// A flag or its environment variable.
    Flag(&'static str),
}

/// The problems found so far.
#[derive(Debug)]
pub(super) struct Problems<'a> {
    file: Option<&'a Path>,
    found: Vec<Problem>,
}

impl<'a> Problems<'a> {
    pub(super) fn new(file: Option<&'a Path>) -> Self {
        Self { file, found: Vec::new() }
    }

    /// Adds a problem: `text` goes on from the place, and says what to do.
    pub(super) fn add(&mut self, origin: &Origin, text: impl fmt::Display) {
        let problem = match (origin, self.file) {
            (Origin::Flag(flag), _) => format!("{flag}{text}"),
            (Origin::Key(key), Some(file)) => format!("{}: {key}{text}", file.display()),
            (Origin::Key(key), None) => format!("{key}{text}"),
        };
        self.found.push(Problem(problem));
    }

    /// `value`, where there were no problems.
    pub(super) fn finish<T>(self, value: T) -> Result<T, ConfigError> {
        if self.found.is_empty() { Ok(value) } else { Err(ConfigError::Invalid(self.found)) }
    }
}

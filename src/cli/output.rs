//! Standard output that may be closed, and tables.

use std::{
    fmt,
    io::{self, BufWriter, Write},
};

use serde::Serialize;

/// Standard output, to be flushed.
pub(super) fn stdout() -> impl Write {
    BufWriter::new(UntilClosed { out: io::stdout().lock(), is_closed: false })
}

/// Writes a line for people on the standard error. Where nobody reads it, it is dropped.
pub(super) fn tell(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Drops what is written after the reader went away, as behind `| head`: that is no failure of the command.
struct UntilClosed<W> {
    out: W,
    is_closed: bool,
}

impl<W: Write> UntilClosed<W> {
    fn or_closed<T>(&mut self, result: io::Result<T>, otherwise: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(otherwise)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Ok(bytes.len());
        }
        let result = self.out.write(bytes);
        self.or_closed(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let result = self.out.flush();
        self.or_closed(result, ())
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Writes rows in aligned columns, two spaces apart, without spaces at the end.
pub(super) fn write_table<const N: usize>(
    out: &mut impl Write,
    align: [Align; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let cells = row.iter().zip(align).zip(widths).map(|((cell, align), width)| match align {
            Align::Left => format!("{cell:width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Writes a value as one line of JSON.
pub(super) fn write_json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

/// A key as a terminal may show it: control characters are escaped.
pub(super) fn shown(key: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    key.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() -> io::Result<()> {
        let mut out = UntilClosed { out: Broken, is_closed: false };
        writeln!(out, "first")?;
        writeln!(out, "second")?;
        out.flush()
    }

    #[test]
    fn columns_are_aligned_and_lines_end_without_spaces() -> io::Result<()> {
        let mut out = Vec::new();
        let rows =
            [["KEY", "N", "NOTE"], ["a", "10", ""], ["long", "5", "x"]].map(|row| row.map(String::from));
        write_table(&mut out, [Align::Left, Align::Right, Align::Left], &rows)?;
        assert_eq!(String::from_utf8_lossy(&out), "KEY    N  NOTE\na     10\nlong   5  x\n");
        Ok(())
    }

    #[test]
    fn control_characters_of_keys_do_not_reach_the_terminal() {
        assert_eq!(shown("a\x1b[2Jb\u{9b}ü"), "a\\u{1b}[2Jb\\u{9b}ü");
    }
}
